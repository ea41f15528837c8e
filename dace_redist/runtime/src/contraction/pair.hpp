// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The contraction of two tensors.

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "contraction/gemm_plan.hpp"
#include "contraction/loops.hpp"
#include "contraction/workspace.hpp"
#include "copy/copy.hpp"

namespace dace_redist {

namespace detail {

/// Time of the loops, comparable with that of a GemmPlan.
inline double estimated_time(const LoopNest& nest) {
  double steps = 1;
  for (const Dimension& dimension : nest.dimensions()) steps *= static_cast<double>(dimension.extent);
  if (nest.dimensions().empty()) return 0;
  const Dimension& inner = nest.dimensions().back();
  bool contiguous = true;
  for (const Index stride : inner.strides) contiguous = contiguous && (stride == 0 || stride == 1);
  return steps * ((contiguous ? 0.3 : 1.5) + 8.0 / static_cast<double>(inner.extent));
}

/// `target = source + beta * target` for a block with `source` contiguous.
template <class T>
void add_block(const StridedBlock& block, const T* source, T beta, T* target) {
  const std::size_t outer = block.ndim > 0 ? static_cast<std::size_t>(block.ndim - 1) : 0;
  const Index count = block.ndim > 0 ? block.counts[outer] : 1, stride = block.target_strides[outer];
  std::array<Index, max_block_dims> index{};
  for (;;) {
    scale_vector(count, beta, target, stride);
    multiply_add<false>(count, T(1), source, 1, target, stride);
    source += count;
    std::size_t d = outer;
    for (; d-- > 0;) {
      target += block.target_strides[d];
      if (++index[d] < block.counts[d]) break;
      target -= block.counts[d] * block.target_strides[d];
      index[d] = 0;
    }
    if (d == std::size_t(-1)) return;
  }
}

}  // namespace detail

/// `c = alpha * sum(a * b) + beta * c`, planned once for tensors of given extents and strides.
template <class T>
class Pair {
 public:
  /// \param dimensions  No extent 0, at most most_dimensions; one that a single tensor holds must not be c's own.
  explicit Pair(Dimensions dimensions) {
    merge_dimensions(dimensions);
    const auto shared = [](const Dimension& d) { return (d.holders & (d.holders - 1)) != 0; };
    nest_ = LoopNest(dimensions);
    const auto of_b = [](const Dimension& d) { return d.in(B); };
    if (!std::all_of(dimensions.begin(), dimensions.end(), shared)) return;
    if (std::none_of(dimensions.begin(), dimensions.end(), of_b)) return;
    plan_ = choose_gemm_plan(dimensions, sizeof(T));
    by_matrices_ = plan_.nanoseconds < detail::estimated_time(nest_);
  }

  /// Elements of the buffers that run() needs.
  Index scratch_count() const {
    Index count = 0;
    for (const Operand tensor : {A, B, C}) count += buffer_count(tensor);
    return count;
  }

  /// Whether it runs as products of matrices, and how; for tests and reports.
  bool by_matrices() const { return by_matrices_; }
  const GemmPlan& plan() const { return plan_; }

  /// \param scratch  [scratch_count()], aligned to 64 bytes.
  void run(T alpha, const T* a, const T* b, T beta, T* c, T* scratch) const {
    if (!by_matrices_) return nest_.run(alpha, a, b, beta, c);
    Tile tile_a{A, scratch}, tile_b{B, tile_a.buffer + buffer_count(A)}, tile_c{C, tile_b.buffer + buffer_count(B)};
    TileWalk at(plan_.dimensions, plan_.tiles);
    do {
      const Index m = size(at, Rows), n = size(at, Columns), k = size(at, Sums);
      const Matrix<const T> left = input(tile_a, at, a), right = input(tile_b, at, b);
      const bool first = starts_sum(at);
      if (plan_.packed[C]) {
        multiply_matrices<T>(m, n, k, alpha, left, right, T(first ? 0 : 1), packed_matrix<T>(tile_c, at));
        if (ends_sum(at)) put_back(tile_c, at, beta, c + at.offset(C));
      } else {
        multiply_matrices<T>(m, n, k, alpha, left, right, first ? beta : T(1), matrix<T>(C, c + at.offset(C)));
      }
    } while (at.advance());
  }

 private:
  /// A tensor's buffer and what it holds.
  struct Tile {
    Operand tensor;
    T* buffer;
    bool filled = false;
    Index offset = 0;
    std::array<Index, max_block_dims> counts{};
  };

  Index buffer_count(Operand tensor) const {
    return by_matrices_ && plan_.packed[tensor] ? detail::aligned_count(plan_.size(tensor), sizeof(T)) : 0;
  }

  Index size(const TileWalk& at, MatrixSide side) const {
    Index product = 1;
    for (const std::size_t d : plan_.groups[side]) product *= at.extent(d);
    return product;
  }

  bool starts_sum(const TileWalk& at) const {
    for (std::size_t d = 0; d < plan_.dimensions.size(); ++d)
      if (plan_.dimensions[d].holders == holders_of[Sums] && at.first(d) > 0) return false;
    return true;
  }
  bool ends_sum(const TileWalk& at) const {
    for (std::size_t d = 0; d < plan_.dimensions.size(); ++d)
      if (plan_.dimensions[d].holders == holders_of[Sums] && at.first(d) + at.extent(d) < plan_.dimensions[d].extent)
        return false;
    return true;
  }

  template <class E>
  Matrix<E> matrix(Operand tensor, E* data) const {
    return {data, plan_.stride(tensor, sides_of[tensor][0]), plan_.stride(tensor, sides_of[tensor][1])};
  }

  /// The sides of a buffer, the one whose elements are contiguous last: that of the tensor's shortest stride.
  std::pair<MatrixSide, MatrixSide> buffer_sides(Operand tensor) const {
    const auto shortest = [&](MatrixSide side) {
      Index stride = blas::longest;
      for (const std::size_t d : plan_.groups[side])
        stride = std::min(stride, detail::magnitude_of(plan_.dimensions[d].strides[tensor]));
      return stride;
    };
    const auto [first, second] = sides_of[tensor];
    if (shortest(first) < shortest(second)) return {second, first};
    return {first, second};
  }

  template <class E>
  Matrix<E> packed_matrix(const Tile& tile, const TileWalk& at) const {
    const auto [outer, inner] = buffer_sides(tile.tensor);
    const Matrix<E> in_order{tile.buffer, size(at, inner), 1};
    return outer == sides_of[tile.tensor][0] ? in_order : in_order.transposed();
  }

  /// The tile as a block, contiguous on one side.
  StridedBlock block(const Tile& tile, const TileWalk& at) const {
    StridedBlock result;
    const auto [outer, inner] = buffer_sides(tile.tensor);
    for (const MatrixSide side : {outer, inner})
      for (const std::size_t d : plan_.groups[side]) {
        const auto position = static_cast<std::size_t>(result.ndim++);
        result.counts[position] = at.extent(d);
        result.source_strides[position] = plan_.dimensions[d].strides[tile.tensor];
      }
    Index stride = 1;
    for (auto d = static_cast<std::size_t>(result.ndim); d-- > 0; stride *= result.counts[d])
      result.target_strides[d] = stride;
    return result;
  }

  /// The matrix of an input's tile, copied if need be and if its buffer does not hold it already.
  Matrix<const T> input(Tile& tile, const TileWalk& at, const T* data) const {
    const Index offset = at.offset(tile.tensor);
    if (!plan_.packed[tile.tensor]) return matrix<const T>(tile.tensor, data + offset);
    const StridedBlock tile_block = block(tile, at);
    if (!tile.filled || tile.offset != offset || tile.counts != tile_block.counts)
      copy(make_copy_block(tile_block, sizeof(T)), data + offset, tile.buffer, false);
    tile.filled = true;
    tile.offset = offset;
    tile.counts = tile_block.counts;
    return packed_matrix<const T>(tile, at);
  }

  void put_back(const Tile& tile, const TileWalk& at, T beta, T* c) const {
    StridedBlock to_c = block(tile, at);
    std::swap(to_c.source_strides, to_c.target_strides);
    if (beta == T(0))
      copy(make_copy_block(to_c, sizeof(T)), tile.buffer, c, false);
    else
      detail::add_block(to_c, tile.buffer, beta, c);
  }

  LoopNest nest_;
  GemmPlan plan_;
  bool by_matrices_ = false;
};

}  // namespace dace_redist
