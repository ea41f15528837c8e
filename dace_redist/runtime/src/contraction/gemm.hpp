// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Executes a GemmPlan on the CPU: loops over tiles, copies, calls of BLAS.

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "contraction/gemm_plan.hpp"
#include "contraction/matrix.hpp"
#include "copy/copy.hpp"

namespace dace_redist {

/// One run of a plan that was not made for batches.
template <class T>
class Gemm {
 public:
  /// \param scratch  [plan.scratch_count], aligned to 64 bytes.
  Gemm(const GemmPlan& plan, T* scratch) : plan_(plan), at_(plan.dimensions) {
    for (const Operand tensor : {A, B, C}) buffers_[tensor].data = scratch + plan.buffer_at[tensor];
  }

  /// `c = alpha * sum(a * b) + beta * c`.
  void run(T alpha, const T* a, const T* b, T beta, T* c) {
    do {
      const Index m = plan_.size(Rows, at_), n = plan_.size(Columns, at_), k = plan_.size(Sums, at_);
      const Matrix<const T> left = input(A, a), right = input(B, b);
      const bool first = is_at_end_of_sum(false), copied = plan_.copied[C];
      const Matrix<T> target = matrix(C, copied ? buffers_[C].data : c + at_.offset(C));
      multiply_matrices<T>(m, n, k, alpha, left, right, !first ? T(1) : copied ? T(0) : beta, target);
      if (copied && is_at_end_of_sum(true)) put_back(beta, c + at_.offset(C));
    } while (at_.advance());
  }

 private:
  /// A tensor's buffer and the tile in it.
  struct Buffer {
    T* data;
    const T* tile = nullptr;
    std::array<Index, max_block_dims> counts{};
  };

  /// Whether the tile holds the first or the last terms of its sums.
  bool is_at_end_of_sum(bool last) const {
    for (std::size_t d = 0; d < plan_.dimensions.size(); ++d) {
      if (plan_.dimensions[d].holders != holders_of[Sums]) continue;
      if (last ? at_.first(d) + at_.extent(d) < plan_.dimensions[d].extent : at_.first(d) > 0) return false;
    }
    return true;
  }

  template <class E>
  Matrix<E> matrix(Operand tensor, E* data) const {
    const auto [row_stride, column_stride] = plan_.strides(tensor, at_);
    return {data, row_stride, column_stride};
  }

  /// The matrix of an input's tile, which is copied unless it is in the buffer.
  Matrix<const T> input(Operand tensor, const T* data) {
    const T* const tile = data + at_.offset(tensor);
    if (!plan_.copied[tensor]) return matrix(tensor, tile);
    const StridedBlock block = plan_.block(tensor, at_);
    Buffer& buffer = buffers_[tensor];
    if (buffer.tile != tile || buffer.counts != block.counts)
      copy(make_copy_block(block, sizeof(T)), tile, buffer.data, false);
    buffer.tile = tile;
    buffer.counts = block.counts;
    return matrix<const T>(tensor, buffer.data);
  }

  void put_back(T beta, T* c) const {
    StridedBlock block = plan_.block(C, at_);
    std::swap(block.source_strides, block.target_strides);
    if (beta == T(0)) return copy(make_copy_block(block, sizeof(T)), buffers_[C].data, c, false);
    Dimensions dimensions;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      dimensions.push_back({block.counts[d], {block.source_strides[d], 0, block.target_strides[d]}, 1u << A | 1u << C});
    const T one(1);
    LoopNest(std::move(dimensions)).run(one, static_cast<const T*>(buffers_[C].data), &one, beta, c);
  }

  const GemmPlan& plan_;
  TileWalk<> at_;
  std::array<Buffer, 3> buffers_{};
};

}  // namespace dace_redist
