// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// An einsum as products of matrices in batches, with copies before and after them where a tensor does not lie as such
/// a product needs it. It is for a GPU, whose library multiplies many matrices in one call; nothing here runs on one.
///
/// Start reading at: plan_batched_gemms().

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contraction/dimension.hpp"
#include "contraction/einsum.hpp"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// A tensor that a step reads or writes.
struct TensorPlace {
  /// Kept: an intermediate result. Scratch: a copy for one step; the next step writes over it. The last two: constants.
  enum Kind { operand, result, kept, scratch, ones, zeros };
  Kind kind = kept;
  Index at = 0;  ///< which operand; elements from the start of what is kept, or of the scratch memory
};

/// A copy of a block, such as a permutation.
struct BlockCopy {
  TensorPlace source, target;
  StridedBlock block;
  bool only_with_beta = false;  ///< what the result held before: not needed if beta is 0
};

/// One side of a BatchedGemm, in the words of BLAS: matrices in column-major order, perhaps transposed.
struct BatchedMatrix {
  TensorPlace place;
  bool transposed = false;
  Index leading = 1;  ///< elements between columns as they are stored
  Index step = 0;     ///< elements from one matrix of the batch to the next
};

/// `c = alpha * a b + beta * c` for each matrix of a batch; a is m x k, b is k x n, and c is not transposed.
struct BatchedGemm {
  Index m = 1, n = 1, k = 1, batches = 1;
  BatchedMatrix a, b, c;
  bool has_alpha = false;  ///< else alpha is 1
  bool has_beta = false;   ///< else beta is 0
  bool is_empty = false;   ///< alpha is 0: a sum without terms
};

/// The steps of an einsum, `result = alpha * einsum + beta * result`, in their order.
struct BatchedGemmPlan {
  std::vector<std::variant<BlockCopy, BatchedGemm>> steps;
  Index kept_count = 0, scratch_count = 0, ones_count = 0, zeros_count = 0;  ///< elements by kind of place

  /// Elements that copies read, those for beta apart; for tests and reports.
  Index copied_count() const {
    Index count = 0;
    for (const auto& step : steps)
      if (const auto* copy = std::get_if<BlockCopy>(&step); copy && !copy->only_with_beta) count += copy->block.count();
    return count;
  }
};

namespace detail {

/// The dimensions of a product of two tensors by what they are in the products of matrices.
enum GemmSide : std::size_t { GemmRows = 0, GemmColumns = 1, GemmSums = 2, GemmBatch = 3 };

/// Positions of dimensions, outermost first, by GemmSide.
using GemmSides = std::array<std::vector<std::size_t>, 4>;

/// The sides of a tensor's matrices.
inline std::array<GemmSide, 2> matrix_sides(Operand tensor) {
  if (tensor == A) return {GemmRows, GemmSums};
  if (tensor == B) return {GemmSums, GemmColumns};
  return {GemmRows, GemmColumns};
}

/// How a matrix of these extents and strides is stored in column-major order; none if BLAS cannot take it.
inline std::optional<std::pair<bool, Index>> column_major(Index rows, Index columns, Index row_stride,
                                                          Index column_stride) {
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows))
    return std::pair{false, columns == 1 ? rows : column_stride};
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns))
    return std::pair{true, rows == 1 ? columns : row_stride};
  return {};
}

/// A product of two tensors in matrices whose sides are chosen.
class PairOfTensors {
 public:
  /// Extents and strides of a tensor's matrices.
  struct Sides {
    std::array<Index, 2> extents, strides;
    Index step;
  };

  PairOfTensors(const Dimensions& dimensions, GemmSides sides) : dimensions_(dimensions), sides_(std::move(sides)) {
    for (const Operand tensor : {A, B, C}) copied_[tensor] = !lies_right(tensor);
  }

  bool copied(Operand tensor) const { return copied_[tensor]; }
  Index extent(GemmSide side) const {
    Index product = 1;
    for (const std::size_t d : sides_[side]) product *= dimensions_[d].extent;
    return product;
  }
  /// Elements of a tensor.
  Index count(Operand tensor) const {
    Index product = 1;
    for (const Dimension& dimension : dimensions_)
      if (dimension.in(tensor)) product *= dimension.extent;
    return product;
  }

  /// What the product reads and writes, in elements, with its copies. A contiguous run in a matrix counts for at least
  /// what the device reads at once.
  double traffic() const {
    constexpr double least_run = 8;
    double sum = 0;
    for (const Operand tensor : {A, B, C}) {
      const Sides found = sides(tensor);
      double run = 1;
      for (const std::size_t side : {0u, 1u})
        if (found.strides[side] == 1) run = std::max(run, static_cast<double>(found.extents[side]));
      const double copies = !copied_[tensor] ? 0 : tensor == C ? 3 : 2;  // of the result also before, if beta is not 0
      sum += static_cast<double>(count(tensor)) * (copies + std::max(1.0, least_run / run));
    }
    return sum;
  }

  /// A tensor's matrices as they lie, or in the buffer that it is copied to.
  Sides sides(Operand tensor) const {
    Sides found{};
    const auto [first, second] = matrix_sides(tensor);
    found.extents = {extent(first), extent(second)};
    if (!copied_[tensor]) {
      found.strides = {stride(first, tensor), stride(second, tensor)};
      found.step = stride(GemmBatch, tensor);
      return found;
    }
    const bool first_is_inner = buffer_sides(tensor)[1] == first;
    found.strides = {first_is_inner ? 1 : found.extents[1], first_is_inner ? found.extents[0] : 1};
    found.step = has_batch(tensor) ? found.extents[0] * found.extents[1] : 0;
    return found;
  }

  /// Copies a tensor to its buffer.
  StridedBlock to_buffer(Operand tensor) const {
    StridedBlock block;
    const auto [outer, inner] = buffer_sides(tensor);
    for (const GemmSide side : {GemmBatch, outer, inner})
      for (const std::size_t d : sides_[side]) {
        if (!dimensions_[d].in(tensor)) continue;
        const auto position = static_cast<std::size_t>(block.ndim++);
        if (block.ndim > max_block_dims)
          throw Error(text("a tensor has more than ", max_block_dims, " dimensions that cannot be merged"));
        block.counts[position] = dimensions_[d].extent;
        block.source_strides[position] = dimensions_[d].strides[tensor];
      }
    Index distance = 1;
    for (auto d = static_cast<std::size_t>(block.ndim); d-- > 0; distance *= block.counts[d])
      block.target_strides[d] = distance;
    return block;
  }

 private:
  bool has_batch(Operand tensor) const {
    return std::any_of(sides_[GemmBatch].begin(), sides_[GemmBatch].end(),
                       [&](std::size_t d) { return dimensions_[d].in(tensor); });
  }

  /// Distance in a tensor between neighbours of one side, if its dimensions follow each other.
  Index stride(GemmSide side, Operand tensor) const {
    return sides_[side].empty() ? 0 : dimensions_[sides_[side].back()].strides[tensor];
  }
  bool follow(GemmSide side, Operand tensor) const {
    const std::vector<std::size_t>& group = sides_[side];
    for (std::size_t i = 0; i + 1 < group.size(); ++i)
      if (!adjoin(dimensions_[group[i]], dimensions_[group[i + 1]], tensor)) return false;
    return stride(side, tensor) >= 0;
  }

  bool lies_right(Operand tensor) const {
    const auto [first, second] = matrix_sides(tensor);
    if (!follow(first, tensor) || !follow(second, tensor) || !follow(GemmBatch, tensor)) return false;
    return column_major(extent(first), extent(second), stride(first, tensor), stride(second, tensor)).has_value();
  }

  /// The sides of a buffer, the one whose elements are contiguous last: that of the tensor's shortest stride.
  std::array<GemmSide, 2> buffer_sides(Operand tensor) const {
    const auto shortest = [&](GemmSide side) {
      Index least = std::numeric_limits<Index>::max();
      for (const std::size_t d : sides_[side]) least = std::min(least, std::abs(dimensions_[d].strides[tensor]));
      return least;
    };
    const auto [first, second] = matrix_sides(tensor);
    if (shortest(first) < shortest(second)) return {second, first};
    return {first, second};
  }

  const Dimensions& dimensions_;
  GemmSides sides_;
  std::array<bool, 3> copied_{};
};

/// Every order of a side's dimensions that is one of those in a tensor.
inline std::vector<std::vector<std::size_t>> orders(const Dimensions& dimensions,
                                                    const std::vector<std::size_t>& group) {
  std::vector<std::vector<std::size_t>> found;
  for (const Operand tensor : {A, B, C}) {
    std::vector<std::size_t> sorted = group;
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t x, std::size_t y) {
      return dimensions[x].strides[tensor] > dimensions[y].strides[tensor];
    });
    if (std::find(found.begin(), found.end(), sorted) == found.end()) found.push_back(std::move(sorted));
  }
  return found;
}

/// The matrices for which least is read and written.
/// \param dimensions  Merged; each belongs to at least two of the tensors.
inline PairOfTensors choose_matrices(const Dimensions& dimensions) {
  GemmSides all;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const unsigned holders = dimensions[d].holders;
    const bool in_a = (holders & 1u << A) != 0, in_b = (holders & 1u << B) != 0, in_c = (holders & 1u << C) != 0;
    all[in_a && in_b ? (in_c ? GemmBatch : GemmSums) : in_a ? GemmRows : GemmColumns].push_back(d);
  }
  std::vector<GemmSides> candidates{all};
  if (all[GemmBatch].empty())  // one dimension of the rows or columns may count the matrices instead
    for (const GemmSide side : {GemmRows, GemmColumns})
      for (const std::size_t d : all[side]) {
        candidates.push_back(all);
        candidates.back()[GemmBatch] = {d};
        std::vector<std::size_t>& left = candidates.back()[side];
        left.erase(std::find(left.begin(), left.end(), d));
      }
  std::optional<PairOfTensors> best;
  for (const GemmSides& sides : candidates)
    for (const auto& rows : orders(dimensions, sides[GemmRows]))
      for (const auto& columns : orders(dimensions, sides[GemmColumns]))
        for (const auto& sums : orders(dimensions, sides[GemmSums]))
          for (const auto& batch : orders(dimensions, sides[GemmBatch])) {
            PairOfTensors pair(dimensions, {rows, columns, sums, batch});
            if (!best || pair.traffic() < best->traffic()) best.emplace(std::move(pair));
          }
  return std::move(*best);
}

/// Makes a plan, step by step.
class BatchedGemmPlanner {
 public:
  struct Tensor {
    Layout layout;
    TensorPlace place;
  };

  BatchedGemmPlan plan(const TensorLayouts& layouts, const Path& path) {
    result_ = layouts.result;
    if (result_.count() == 0) return {};
    if (layouts.has_empty_operand()) {
      add_empty_sum();
      return std::move(plan_);
    }
    std::vector<Tensor> left;
    for (const Layout& layout : layouts.operands)
      left.push_back({layout, {TensorPlace::operand, static_cast<Index>(left.size())}});
    for (std::size_t step = 0; step < path.size(); ++step) {
      std::vector<Tensor> taken;
      for (const std::size_t position : path[step]) taken.push_back(left[position]);
      std::vector<std::size_t> sorted = path[step];
      std::sort(sorted.rbegin(), sorted.rend());
      for (const std::size_t position : sorted) left.erase(left.begin() + static_cast<std::ptrdiff_t>(position));
      left.push_back(contract(std::move(taken), left, step + 1 == path.size()));
    }
    return std::move(plan_);
  }

 private:
  /// `result = beta * result`: a product of zeros.
  void add_empty_sum() {
    const Layout one_term = contiguous_layout("", {});
    add_pair({one_term, {TensorPlace::zeros, 0}}, {one_term, {TensorPlace::zeros, 0}}, result_, true);
    auto& product = std::get<BatchedGemm>(*std::find_if(plan_.steps.begin(), plan_.steps.end(), [](const auto& step) {
      return std::holds_alternative<BatchedGemm>(step);
    }));
    product.is_empty = true;
  }

  Tensor contract(std::vector<Tensor> taken, const std::vector<Tensor>& rest, bool last) {
    Tensor found = taken.front();
    if (taken.size() == 1) return contract_pair(found, ones_to_sum(found, {}, rest), rest, last);
    for (std::size_t i = 1; i < taken.size(); ++i) {
      std::vector<Tensor> others = rest;
      others.insert(others.end(), taken.begin() + static_cast<std::ptrdiff_t>(i) + 1, taken.end());
      const bool is_last = last && i + 1 == taken.size();
      Tensor left = summed(found, taken[i].layout, others), right = summed(taken[i], left.layout, others);
      found = contract_pair(left, right, others, is_last);
    }
    return found;
  }

  bool needed(char index, const std::vector<Tensor>& rest) const {
    return result_.has(index) ||
           std::any_of(rest.begin(), rest.end(), [&](const Tensor& tensor) { return tensor.layout.has(index); });
  }

  /// Ones with the indices that only a tensor has: a product with them sums over these.
  Tensor ones_to_sum(const Tensor& tensor, const Layout& other, const std::vector<Tensor>& rest) const {
    std::string alone;
    std::vector<Index> extents;
    for (std::size_t d = 0; d < tensor.layout.indices.size(); ++d) {
      const char index = tensor.layout.indices[d];
      if (other.has(index) || needed(index, rest)) continue;
      alone += index;
      extents.push_back(tensor.layout.extents[d]);
    }
    return {contiguous_layout(alone, extents), {TensorPlace::ones, 0}};
  }

  /// A tensor without the indices that only it has.
  Tensor summed(const Tensor& tensor, const Layout& other, const std::vector<Tensor>& rest) {
    const Tensor ones = ones_to_sum(tensor, other, rest);
    if (ones.layout.indices.empty()) return tensor;
    std::string kept;
    std::vector<Index> extents;
    for (std::size_t d = 0; d < tensor.layout.indices.size(); ++d) {
      if (ones.layout.has(tensor.layout.indices[d])) continue;
      kept += tensor.layout.indices[d];
      extents.push_back(tensor.layout.extents[d]);
    }
    const Layout layout = contiguous_layout(kept, extents);
    return {layout, add_pair(tensor, ones, layout, false)};
  }

  Tensor contract_pair(const Tensor& a, const Tensor& b, const std::vector<Tensor>& rest, bool last) {
    const Layout layout = last ? result_ : intermediate(a.layout, b.layout, rest);
    return {layout, add_pair(a, b, layout, last)};
  }

  /// An intermediate in the order that the matrices give: what both have first, then a's indices, then b's.
  Layout intermediate(const Layout& a, const Layout& b, const std::vector<Tensor>& rest) const {
    std::string indices;
    std::vector<Index> extents;
    const auto add = [&](const Layout& of, const Layout& other, bool shared) {
      for (std::size_t d = 0; d < of.indices.size(); ++d) {
        if (other.has(of.indices[d]) != shared || !needed(of.indices[d], rest)) continue;
        indices += of.indices[d];
        extents.push_back(of.extents[d]);
      }
    };
    add(a, b, true);
    add(a, b, false);
    add(b, a, false);
    return contiguous_layout(indices, extents);
  }

  /// New memory, `at` elements of which are taken already.
  static TensorPlace take(TensorPlace::Kind kind, Index count, Index& at) {
    const Index begin = at;
    at += (count + alignment - 1) / alignment * alignment;
    return {kind, begin};
  }

  /// Adds a product of two tensors, with its copies. \return where it is.
  TensorPlace add_pair(const Tensor& a, const Tensor& b, const Layout& c, bool last) {
    Dimensions dimensions = dimensions_of(a.layout, b.layout, c);
    for (Dimension& dimension : dimensions)  // of a sum without terms: the constant has it, with stride 0
      if (dimension.holders == 1u << C) dimension.holders |= 1u << A;
    merge_dimensions(dimensions);
    const PairOfTensors pair = choose_matrices(dimensions);
    const TensorPlace target =
        last ? TensorPlace{TensorPlace::result, 0} : take(TensorPlace::kept, c.count(), plan_.kept_count);
    const std::array<TensorPlace, 3> own{a.place, b.place, target};
    std::array<TensorPlace, 3> used = own;
    Index scratch_count = 0;
    for (const Operand tensor : {A, B, C}) {
      if (!pair.copied(tensor)) continue;
      used[tensor] = take(TensorPlace::scratch, pair.count(tensor), scratch_count);
      if (tensor != C || last)
        plan_.steps.push_back(BlockCopy{own[tensor], used[tensor], pair.to_buffer(tensor), tensor == C});
    }
    plan_.scratch_count = std::max(plan_.scratch_count, scratch_count);
    add_product(pair, used, last);
    for (const Tensor* tensor : {&a, &b}) count_constants(*tensor);
    if (pair.copied(C)) {
      StridedBlock back = pair.to_buffer(C);
      std::swap(back.source_strides, back.target_strides);
      plan_.steps.push_back(BlockCopy{used[C], own[C], back, false});
    }
    return own[C];
  }

  /// There must be as many of a constant as the tensor that it stands for has elements.
  void count_constants(const Tensor& tensor) {
    if (tensor.place.kind == TensorPlace::ones) plan_.ones_count = std::max(plan_.ones_count, tensor.layout.count());
    if (tensor.place.kind == TensorPlace::zeros) plan_.zeros_count = std::max(plan_.zeros_count, tensor.layout.count());
  }

  void add_product(const PairOfTensors& pair, const std::array<TensorPlace, 3>& used, bool last) {
    BatchedGemm product;
    product.m = pair.extent(GemmRows);
    product.n = pair.extent(GemmColumns);
    product.k = pair.extent(GemmSums);
    product.batches = pair.extent(GemmBatch);
    product.has_alpha = product.has_beta = last;
    std::array<BatchedMatrix, 3> matrices;
    for (const Operand tensor : {A, B, C}) {
      const PairOfTensors::Sides sides = pair.sides(tensor);
      const auto stored = column_major(sides.extents[0], sides.extents[1], sides.strides[0], sides.strides[1]);
      matrices[tensor] = {used[tensor], stored->first, stored->second, sides.step};
    }
    if (matrices[C].transposed) {  // the transposed product: c' = b' a'
      std::swap(product.m, product.n);
      std::swap(matrices[A], matrices[B]);
      for (BatchedMatrix& matrix : matrices) matrix.transposed = !matrix.transposed;
    }
    product.a = matrices[A];
    product.b = matrices[B];
    product.c = matrices[C];
    plan_.steps.push_back(product);
  }

  static constexpr Index alignment = 64;  // elements: buffers start where the device reads fastest

  Layout result_;
  BatchedGemmPlan plan_;
};

}  // namespace detail

/// Plans an einsum for tensors of given extents and strides.
/// \param path  Of complete_path(); a step of more than two tensors goes from left to right.
/// \throws Error if a tensor has too many dimensions for a copy.
inline BatchedGemmPlan plan_batched_gemms(const TensorLayouts& layouts, const Path& path) {
  return detail::BatchedGemmPlanner().plan(layouts, path);
}

}  // namespace dace_redist
