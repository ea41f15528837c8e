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
  Gemm(const GemmPlan& plan, T* scratch) : plan_(plan), at_(plan.dimensions, plan.tiles) {
    for (const Operand tensor : {A, B, C}) buffers_[tensor].data = scratch + plan.buffer_at[tensor];
  }

  /// `c = alpha * sum(a * b) + beta * c`.
  void run(T alpha, const T* a, const T* b, T beta, T* c) {
    do {
      const Index m = plan_.size(Rows, at_), n = plan_.size(Columns, at_), k = plan_.size(Sums, at_);
      const Matrix<const T> left = input(A, a), right = input(B, b);
      const bool first = is_at_end_of_sum(false);
      if (plan_.copied[C]) {
        multiply_matrices<T>(m, n, k, alpha, left, right, T(first ? 0 : 1), buffered<T>(C));
        if (is_at_end_of_sum(true)) put_back(beta, c + at_.offset(C));
      } else {
        multiply_matrices<T>(m, n, k, alpha, left, right, first ? beta : T(1), in_place<T>(C, c + at_.offset(C)));
      }
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
  Matrix<E> in_place(Operand tensor, E* data) const {
    return {data, plan_.stride(tensor, sides_of[tensor][0]), plan_.stride(tensor, sides_of[tensor][1])};
  }

  template <class E>
  Matrix<E> buffered(Operand tensor) const {
    const auto [outer, inner] = plan_.buffer_sides(tensor);
    const Matrix<E> in_order{buffers_[tensor].data, plan_.size(inner, at_), 1};
    return outer == sides_of[tensor][0] ? in_order : in_order.transposed();
  }

  /// The matrix of an input's tile.
  Matrix<const T> input(Operand tensor, const T* data) {
    if (!plan_.copied[tensor]) return in_place<const T>(tensor, data + at_.offset(tensor));
    fill_buffer(tensor, data + at_.offset(tensor));
    return buffered<const T>(tensor);
  }

  /// Copies an input's tile unless it is in the buffer.
  void fill_buffer(Operand tensor, const T* tile) {
    const StridedBlock block = plan_.block(tensor, at_);
    Buffer& buffer = buffers_[tensor];
    if (buffer.tile != tile || buffer.counts != block.counts)
      copy(make_copy_block(block, sizeof(T)), tile, buffer.data, false);
    buffer.tile = tile;
    buffer.counts = block.counts;
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
  TileWalk at_;
  std::array<Buffer, 3> buffers_{};
};

}  // namespace dace_redist
