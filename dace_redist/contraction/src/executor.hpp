// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What executes a plan: properties of a processor that determine the steps, its threads and memory. Every rank is one
/// of several on its node.

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "copy/buffer.hpp"
#include "copy/parallel_for.hpp"
#include "core/cache_line.hpp"
#include "core/vector_bytes.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

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

/// Whether the environment chooses the number of threads of BLAS and OpenMP.
inline bool threads_are_chosen() {
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"})
    if (std::getenv(name)) return true;
  return false;
}

/// Threads for loops: those of OpenMP if the environment chose, else one.
inline int thread_count() {
#ifdef _OPENMP
  return threads_are_chosen() && !omp_in_parallel() ? omp_get_max_threads() : 1;
#else
  return 1;
#endif
}

/// Elements of a buffer, rounded up so that the next buffer is aligned.
inline Index aligned_count(Index count, Index element_bytes) {
  const Index unit = std::max<Index>(1, cache_line_bytes / element_bytes);
  return ceil_div(count, unit) * unit;
}

/// A buffer that grows on demand and never shrinks.
class Workspace {
 public:
  /// At least this many bytes; former contents may be lost.
  char* reserve(Index nbytes) {
    if (nbytes > nbytes_) {
      nbytes_ = 0;
      memory_ = {};  // before its successor is allocated
      memory_ = Buffer(nbytes);
      nbytes_ = nbytes;
    }
    return memory_.at(0);
  }

 private:
  Buffer memory_;
  Index nbytes_ = 0;
};

}  // namespace dace_redist
