// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Properties of what executes a plan, which determine its steps.

#include <type_traits>

#include "layout/intervals.hpp"

namespace dace_redist {

#if defined(__AVX512F__)
inline constexpr Index vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr Index vector_bytes = 32;
#else
inline constexpr Index vector_bytes = 16;
#endif
inline constexpr Index max_panel_vectors = 9;  ///< with more columns BLAS is as good

/// A processor and its routines for the elements of a type.
struct Executor {
  Index element_nbytes;
  bool batches;      ///< GPU: products of batches of matrices only; CPU: reads constants with strides of 0
  bool has_blas;     ///< multiplies matrices
  bool has_vectors;  ///< real numbers and integers: has a kernel for panels of few columns

  /// Whether multiply_by_panel() has a kernel of its own for these columns, instead of BLAS.
  constexpr bool has_panel_kernel(Index columns) const {
    return has_vectors && (!has_blas || columns <= max_panel_vectors * (vector_bytes / element_nbytes));
  }

  /// Columns of a panel with this many in use: whole vectors, the rest of which is zero.
  constexpr Index panel_columns(Index used) const {
    const Index lanes = vector_bytes / element_nbytes;
    return ceil_div(used, lanes) * lanes;
  }
};

/// The CPU, for elements of type T.
template <class T>
inline constexpr Executor executor_of{sizeof(T), false, !std::is_integral_v<T>, std::is_arithmetic_v<T>};

}  // namespace dace_redist
