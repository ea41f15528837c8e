// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The product of a large matrix, read once where it lies, and a panel of few columns that stays in the cache.
///
/// BLAS copies the large matrix first, which costs as much as the arithmetic when the other one has few columns. The
/// tile of accumulators in registers is that of Goto and van de Geijn, ACM TOMS 34(3), 2008,
/// doi 10.1145/1356052.1356053.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "executor.hpp"
#include "matrix.hpp"

namespace dace_redist {

namespace detail {

inline constexpr Index first_level_bytes = Index{1} << 14;  ///< of a matrix whose rows are contiguous, taken at a time
inline constexpr Index tile_rows = vector_bytes == 64 ? 8 : 4;  ///< their accumulators and a row fit the registers
inline constexpr Index tile_vectors = 3;

template <class T>
inline constexpr Index lanes = vector_bytes / static_cast<Index>(sizeof(T));

/// \param offset  Elements; may lead out of the array.
template <class T>
void prefetch([[maybe_unused]] const T* data, [[maybe_unused]] Index offset) {
#if defined(__GNUC__)
  const auto address = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(offset) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
#endif
}

/// `target += a panel` for `Rows` rows and `Vectors` vectors of columns. `Along`: k is contiguous, else the rows are.
template <class T, Index Rows, Index Vectors, bool Along>
void panel_tile(Index depth, Matrix<const T> a, const T* panel, Index columns, T* target) {
  constexpr Index block = 64 / static_cast<Index>(sizeof(T));
  typedef T Vector __attribute__((vector_size(vector_bytes)));
  typedef T Unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
  Vector sums[Rows][Vectors] = {};
  const Index row_stride = Along ? a.row_stride : 1, k_stride = Along ? 1 : a.column_stride;
  for (Index start = 0; start < depth; start += block) {
    if (Along)
      for (Index row = 0; row < Rows; ++row) prefetch(a.data, (row + Rows) * row_stride + start);  // the next rows
    for (Index k = start; k < std::min(depth, start + block); ++k) {
      if (!Along) prefetch(a.data, (k + depth) * k_stride);
      Vector factors[Vectors];
#pragma GCC unroll 3
      for (Index v = 0; v < Vectors; ++v)
        factors[v] = *reinterpret_cast<const Unaligned*>(panel + k * columns + v * lanes<T>);
      const T* element = a.data + k * k_stride;
#pragma GCC unroll 8
      for (Index row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
        for (Index v = 0; v < Vectors; ++v) sums[row][v] += factors[v] * element[row * row_stride];
      }
    }
  }
#pragma GCC unroll 8
  for (Index row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (Index v = 0; v < Vectors; ++v)
      *reinterpret_cast<Unaligned*>(target + row * columns + v * lanes<T>) += sums[row][v];
  }
}

/// `target += a panel`, in tiles of `Rows` rows; the last rows in smaller tiles.
template <class T, Index Rows, bool Along>
void add_panel_product(Index rows, Index depth, Matrix<const T> a, const T* panel, Index columns, T* target) {
  const Index vectors = columns / lanes<T>, groups = ceil_div(vectors, tile_vectors);
  for (; rows >= Rows; rows -= Rows, a.data += Rows * (Along ? a.row_stride : 1), target += Rows * columns)
    for (Index group = 0; group < groups; ++group) {
      const Index begin = vectors * group / groups, size = vectors * (group + 1) / groups - begin;
      const auto tile = size == 1   ? panel_tile<T, Rows, 1, Along>
                        : size == 2 ? panel_tile<T, Rows, 2, Along>
                                    : panel_tile<T, Rows, 3, Along>;
      tile(depth, a, panel + begin * lanes<T>, columns, target + begin * lanes<T>);
    }
  if constexpr (Rows > 1) add_panel_product<T, Rows / 2, Along>(rows, depth, a, panel, columns, target);
}

}  // namespace detail

/// `target = a panel`.
///
/// \param rows, depth  Rows of a and of the target, columns of a and rows of the panel.
/// \param a  A matrix with contiguous rows or columns.
/// \param panel, target  [depth or rows, columns], contiguous.
/// \param columns  From panel_columns().
template <class T>
void multiply_by_panel(Index rows, Index depth, Matrix<const T> a, const T* panel, Index columns, T* target) {
  if constexpr (std::is_arithmetic_v<T>) {
    if (executor_of<T>.has_panel_kernel(columns)) {
      std::fill(target, target + rows * columns, T(0));
      if (a.column_stride == 1 || depth == 1)
        return detail::add_panel_product<T, detail::tile_rows, true>(rows, depth, a, panel, columns, target);
      const Index block = std::max<Index>(16, detail::first_level_bytes / (rows * static_cast<Index>(sizeof(T))));
      for (Index k = 0; k < depth; k += block)  // of this many columns of a every line is used up
        detail::add_panel_product<T, detail::tile_rows, false>(rows, std::min(block, depth - k),
                                                               {a.data + k * a.column_stride, 1, a.column_stride},
                                                               panel + k * columns, columns, target);
      return;
    }
  }
  if constexpr (!std::is_integral_v<T>)
    multiply_matrices<T>(rows, columns, depth, T(1), a, {panel, columns, 1}, T(0), {target, columns, 1});
}

}  // namespace dace_redist
