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
#include <cstring>
#include <type_traits>

#include "contraction/khatri_rao_plan.hpp"
#include "contraction/matrix.hpp"

namespace dace_redist {

namespace detail {

inline constexpr Index first_level_bytes = Index{1} << 14;  ///< of a matrix whose rows are contiguous, taken at a time
inline constexpr Index tile_vectors = 3;

template <class T>
inline constexpr Index lanes = vector_bytes / static_cast<Index>(sizeof(T));

/// The matrix: element (row, k) at `data[row * row_stride + k * k_stride]`, where one of the strides is 1.
template <class T>
struct PanelMatrix {
  const T* data;
  Index row_stride, k_stride;
};

inline void prefetch([[maybe_unused]] std::uintptr_t address) {
#if defined(__GNUC__)
  __builtin_prefetch(reinterpret_cast<const void*>(address));
#endif
}

/// `target += a panel` for `Rows` rows and `Vectors` vectors of columns. `Along`: k is contiguous, else the rows are.
template <class T, Index Rows, Index Vectors, bool Along>
void panel_tile(Index depth, PanelMatrix<T> a, const T* panel, Index panel_stride, T* target) {
  constexpr Index block = 64 / static_cast<Index>(sizeof(T));
  typedef T Vector __attribute__((vector_size(vector_bytes)));
  typedef T Unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
  Vector sums[Rows][Vectors] = {};
  const Index row_stride = Along ? a.row_stride : 1, k_stride = Along ? 1 : a.k_stride;
  for (Index start = 0; start < depth; start += block) {
    const Index end = std::min(depth, start + block);
    if (Along)
      for (Index row = 0; row < Rows; ++row)  // the same place in the rows that come next
        prefetch(reinterpret_cast<std::uintptr_t>(a.data) +
                 static_cast<std::uintptr_t>((row + Rows) * row_stride + start) * sizeof(T));
    for (Index k = start; k < end; ++k) {
      if (!Along)
        prefetch(reinterpret_cast<std::uintptr_t>(a.data) +
                 static_cast<std::uintptr_t>((k + depth) * k_stride) * sizeof(T));
      Vector columns[Vectors];
#pragma GCC unroll 3
      for (Index v = 0; v < Vectors; ++v)
        columns[v] = *reinterpret_cast<const Unaligned*>(panel + k * panel_stride + v * lanes<T>);
      const T* element = a.data + k * k_stride;
#pragma GCC unroll 8
      for (Index row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
        for (Index v = 0; v < Vectors; ++v) sums[row][v] += columns[v] * element[row * row_stride];
      }
    }
  }
#pragma GCC unroll 8
  for (Index row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (Index v = 0; v < Vectors; ++v)
      *reinterpret_cast<Unaligned*>(target + row * panel_stride + v * lanes<T>) += sums[row][v];
  }
}

template <class T, Index Rows, bool Along>
void panel_rows(Index depth, PanelMatrix<T> a, const T* panel, Index panel_stride, T* target) {
  const Index vectors = panel_stride / lanes<T>;
  const Index groups = (vectors + tile_vectors - 1) / tile_vectors;
  Index begin = 0;
  for (Index group = 0; group < groups; ++group) {
    const Index end = vectors * (group + 1) / groups;
    const Index column = begin * lanes<T>;
    const auto tile = end - begin == 1   ? panel_tile<T, Rows, 1, Along>
                      : end - begin == 2 ? panel_tile<T, Rows, 2, Along>
                                         : panel_tile<T, Rows, 3, Along>;
    tile(depth, a, panel + column, panel_stride, target + column);
    begin = end;
  }
}

template <class T, bool Along>
void panel_product(Index rows, Index depth, PanelMatrix<T> a, const T* panel, Index panel_stride, T* target) {
  Index row = 0;
  const auto take = [&](auto count, auto multiply_rows) {
    for (; row + count <= rows; row += count)
      multiply_rows(depth, {a.data + row * (Along ? a.row_stride : 1), a.row_stride, a.k_stride}, panel, panel_stride,
                    target + row * panel_stride);
  };
  take(tile_rows, panel_rows<T, tile_rows, Along>);
  if (tile_rows > 4) take(Index{4}, panel_rows<T, 4, Along>);
  take(Index{2}, panel_rows<T, 2, Along>);
  take(Index{1}, panel_rows<T, 1, Along>);
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
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (has_panel_kernel(columns, sizeof(T))) {
      std::fill(target, target + rows * columns, T(0));
      const detail::PanelMatrix<T> matrix{a.data, a.row_stride, a.column_stride};
      if (a.column_stride == 1 || depth == 1)
        return detail::panel_product<T, true>(rows, depth, matrix, panel, columns, target);
      const Index block = std::max<Index>(16, detail::first_level_bytes / (rows * static_cast<Index>(sizeof(T))));
      for (Index k = 0; k < depth; k += block)  // of this many columns of a every line is used up
        detail::panel_product<T, false>(rows, std::min(block, depth - k),
                                        {a.data + k * a.column_stride, 1, a.column_stride}, panel + k * columns,
                                        columns, target);
      return;
    }
  }
  multiply_matrices<T>(rows, columns, depth, T(1), a, {panel, columns, 1}, T(0), {target, columns, 1});
}

}  // namespace dace_redist
