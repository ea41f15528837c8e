// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Loops over rows of the common index of a Khatri-Rao product, in chunks that stay in registers.

#include <cstddef>
#include <type_traits>

#include "contraction/vector_loops.hpp"

namespace dace_redist::detail {

inline constexpr Index row_chunk_bytes = 64;  ///< of a row, taken at a time

/// `z = x * y`.
template <class T>
void multiply_rows(Index count, const T* __restrict x, const T* __restrict y, T* __restrict z) {
  for (Index i = 0; i < count; ++i) z[i] = multiply(x[i], y[i]);
}

/// Calls `work(first, count)` for the chunks of a row; the count of whole ones is known to the compiler.
template <class T, class Work>
void for_chunks(Index rank, const Work& work) {
  constexpr Index chunk = row_chunk_bytes / static_cast<Index>(sizeof(T));
  Index first = 0;
  for (; first + chunk <= rank; first += chunk) work(first, std::integral_constant<Index, chunk>{});
  if (first < rank) work(first, rank - first);
}

/// `out[p] += product[p] * weights` for rows p.
template <class T>
void add_weighted_rows(Index rows, Index rank, const T* product, Index columns, const T* weights, T* out,
                       Index out_stride) {
  for_chunks<T>(rank, [&](Index first, auto count) {
    for (Index p = 0; p < rows; ++p) {
      const T* __restrict x = product + p * columns + first;
      T* __restrict y = out + p * out_stride + first;
      for (Index i = 0; i < count; ++i) y[i] = static_cast<T>(y[i] + multiply(x[i], weights[first + i]));
    }
  });
}

/// `out += weights * sum(product[p] * factor[p])` over rows p.
template <class T>
void add_weighted_sum(Index rows, Index rank, const T* product, Index columns, const T* factor, Index factor_stride,
                      const T* weights, T* out) {
  for_chunks<T>(rank, [&](Index first, auto count) {
    T sums[row_chunk_bytes / sizeof(T)] = {};
    for (Index p = 0; p < rows; ++p) {
      const T* x = product + p * columns + first;
      const T* y = factor + p * factor_stride + first;
      for (Index i = 0; i < count; ++i) sums[i] = static_cast<T>(sums[i] + multiply(x[i], y[i]));
    }
    for (Index i = 0; i < count; ++i)
      out[first + i] = static_cast<T>(out[first + i] + multiply(sums[i], weights[first + i]));
  });
}

}  // namespace dace_redist::detail
