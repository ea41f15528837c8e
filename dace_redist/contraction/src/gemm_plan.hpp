// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A contraction of two tensors as products of matrices: which dimensions make up the matrices, which ones loop around
/// them, and which tensors are copied first.
///
/// Start reading at: choose_gemm_plan().

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "loops.hpp"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// Groups of dimensions: the sides of `C[rows, columns] += A[rows, sums] B[sums, columns]`, and what loops around them.
enum GemmSide : std::size_t { Rows = 0, Columns = 1, Sums = 2, Around = 3 };

/// The sides of a tensor's matrices.
inline constexpr std::array<std::array<GemmSide, 2>, 3> sides_of{{{Rows, Sums}, {Sums, Columns}, {Rows, Columns}}};
/// The tensors that hold the dimensions of a side.
inline constexpr std::array<unsigned, 3> holders_of{1u << A | 1u << C, 1u << B | 1u << C, 1u << A | 1u << B};

/// Sizes, strides and leading dimensions of BLAS are int.
inline constexpr Index max_blas_extent = std::numeric_limits<int>::max();

/// A matrix as BLAS takes it: in row-major order, perhaps transposed.
struct MatrixLayout {
  bool valid = false;
  bool transposed = false;
  Index leading = 1;  ///< elements between rows as they are stored
};

/// Strides in elements; those of a single row or column do not matter. Not valid if BLAS cannot take the matrix.
inline MatrixLayout matrix_layout(Index rows, Index columns, Index row_stride, Index column_stride) {
  const auto stored = [](bool transposed, Index length, Index stride, bool single) -> MatrixLayout {
    const Index leading = single ? std::max<Index>(1, length) : stride;
    return {leading >= length && leading > 0 && leading <= max_blas_extent, transposed, leading};
  };
  if (columns == 1 || column_stride == 1) {
    const MatrixLayout layout = stored(false, columns, row_stride, rows == 1);
    if (layout.valid) return layout;
  }
  if (rows == 1 || row_stride == 1) return stored(true, rows, column_stride, columns == 1);
  return {};
}

/// Products of matrices within loops over tiles. A tensor that BLAS cannot read where it lies is copied tile by tile.
struct GemmPlan {
  using Group = std::vector<std::size_t>;  ///< positions of dimensions, outermost first

  Dimensions dimensions;                                  ///< in the order of the loops
  std::array<Group, 4> groups;                            ///< by GemmSide
  std::array<bool, 3> copied{};                           ///< by Operand: to a buffer; of C: from a buffer
  std::array<Index, 3> buffer_at{};                       ///< by Operand: position of its buffer in the scratch memory
  Index scratch_count = 0;                                ///< elements of all buffers
  double cost = std::numeric_limits<double>::infinity();  ///< estimated time in accesses to elements

  /// Elements of one side, or of one tensor, in a whole tile.
  Index size(GemmSide side) const;
  Index size(Operand tensor) const;

  /// Distance in a tensor between neighbours of one side.
  Index stride(Operand tensor, GemmSide side) const {
    return groups[side].empty() ? 0 : dimensions[groups[side].back()].strides[tensor];
  }

  /// Sides of a buffer; the elements of the last one are contiguous: that of the tensor's minimal stride.
  std::array<GemmSide, 2> buffer_sides(Operand tensor) const;

  /// A tile of a tensor as the source, the buffer as the target.
  StridedBlock block(Operand tensor, const TileWalk<>& at) const;

  /// Elements of the tile at hand in one side.
  Index size(GemmSide side, const TileWalk<>& at) const {
    Index product = 1;
    for (const std::size_t d : groups[side]) product *= at.extent(d);
    return product;
  }

  /// Strides of the rows and of the columns of a tensor's matrix, in its buffer if it is copied.
  std::array<Index, 2> strides(Operand tensor, const TileWalk<>& at) const {
    const auto [first, second] = sides_of[tensor];
    if (!copied[tensor]) return {stride(tensor, first), stride(tensor, second)};
    if (buffer_sides(tensor)[1] == second) return {size(second, at), 1};
    return {1, size(first, at)};
  }
};

/// The plan of the least cost.
///
/// \param dimensions  Merged; each belongs to at least two of the tensors; no extent 0.
/// \param element_bytes  Bytes of an element.
/// \param batched  One batch of products of whole tensors, for a GPU; else loops around single products.
GemmPlan choose_gemm_plan(const Dimensions& dimensions, Index element_bytes, bool batched);

}  // namespace dace_redist
