// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A tensor times the Khatri-Rao product of matrices (MTTKRP), such as `ijk,ja,ka->ia`, in one pass over the tensor.
///
/// With the tensor's last index summed, blocks of rows of the tensor are multiplied by the Khatri-Rao product of the
/// last matrices, the panel, and the rows of the product are summed up with those of the other matrices as weights.
/// With the last index kept, the panel is that of the indices before it, and the block is transposed. Neither the
/// Khatri-Rao product nor the tensor times some matrices ever exists as a whole. After Phan, Tichavsky, Cichocki, IEEE
/// TSP 61(19), 2013, doi 10.1109/TSP.2013.2269903, who split the indices so, and Hayashi et al., 2017, arXiv
/// 1708.08976.

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "dace_redist/contraction/einsum.hpp"
#include "dace_redist/contraction/pair.hpp"
#include "dace_redist/contraction/panel_product.hpp"

namespace dace_redist {

namespace detail {

inline constexpr Index panel_bytes = Index{1} << 18;    ///< of the panel: it stays in the second-level cache
inline constexpr Index product_bytes = Index{1} << 16;  ///< of a block times the panel
inline constexpr Index row_chunk_bytes = 64;            ///< of a row, taken at a time

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

}  // namespace detail

/// Which operand of an einsum is the tensor, if the others are matrices of its summed indices with one common index.
inline std::optional<std::size_t> find_khatri_rao_tensor(const std::vector<Layout>& operands, const Layout& result) {
  if (operands.size() < 3) return {};
  std::size_t tensor = 0;
  for (std::size_t i = 1; i < operands.size(); ++i)
    if (operands[i].indices.size() > operands[tensor].indices.size()) tensor = i;
  const Layout& x = operands[tensor];
  std::string summed, common;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (i == tensor) continue;
    if (operands[i].indices.size() != 2) return {};
    for (const char index : operands[i].indices) (x.has(index) ? summed : common) += index;
  }
  const std::size_t factors = operands.size() - 1;
  const bool one_common = common.size() == factors && common.find_first_not_of(common.front()) == std::string::npos;
  if (!one_common || summed.size() != factors || !result.has(common.front())) return {};
  if (result.indices.size() + factors != x.indices.size() + 1) return {};
  for (const char index : x.indices)
    if (std::count(summed.begin(), summed.end(), index) != (result.has(index) ? 0 : 1)) return {};
  return tensor;
}

/// The product, planned once for given extents and strides.
template <class T>
class KhatriRao {
 public:
  /// :param operands: For which find_khatri_rao_tensor() found `tensor`; no extent 0.
  KhatriRao(const std::vector<Layout>& operands, std::size_t tensor, const Layout& result) : tensor_(tensor) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Layout& matrix = operands[i];
      const std::size_t common = i == tensor || operands[tensor].has(matrix.indices[1]) ? 0 : 1;
      const auto n = matrix.extents[1 - common], rank = matrix.extents[common];
      factors_.push_back({matrix.strides[1 - common], matrix.strides[common], n, -1});
      if (i == tensor) continue;
      rank_ = rank;
      common_ = matrix.indices[common];
    }
    columns_ = panel_columns<T>(rank_);
    set_result(result);
    set_axes(operands);
    usable_ = choose_groups();
    if (usable_) lay_out();
  }

  /// Whether the tensor lies so that its rows or columns are matrices; if not, run() must not be called.
  bool usable() const { return usable_; }

  /// Elements of the buffers that run() needs.
  Index scratch_count() const { return scratch_count_; }

  /// :param operands: As the layouts were.
  /// :param scratch: [scratch_count()], aligned to 64 bytes.
  template <class Operands>
  void run(T alpha, const Operands& operands, T beta, T* result, T* scratch) const {
    Running now{operands(tensor_), {}, scratch, result_in_buffer_ ? scratch + result_at_ : result};
    for (std::size_t i = 0; i < factors_.size(); ++i)
      now.factors.at(i) = i == tensor_ ? nullptr : rows(i, operands(i), scratch);
    direct_nest_.scale(result_in_buffer_ ? T(0) : beta, now.result);
    T* const ones = scratch + weights_at_;
    std::fill(ones, ones + columns_, T(0));
    const Axis& first = axes_[panel_.front()];
    const Index chunks = (first.extent + panel_chunk_ - 1) / panel_chunk_;
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      const Index begin = chunk * panel_chunk_, count = std::min(panel_chunk_, first.extent - begin);
      std::fill(ones, ones + rank_, alpha);
      T* panel = scratch + panel_at_;
      fill_panel(now, 0, begin, count, ones, panel);
      std::fill(ones, ones + rank_, T(1));
      pass(now, now.tensor + begin * first.tensor_stride, (panel - scratch - panel_at_) / columns_);
    }
    const T one(1);
    if (result_in_buffer_) buffer_nest_.run(T(1), static_cast<const T*>(now.result), &one, beta, result);
  }

 private:
  /// An index of the tensor.
  struct Axis {
    Index extent, tensor_stride, result_stride;
    std::size_t factor;
    bool kept;
  };
  struct Factor {
    Index row_stride, column_stride, rows;
    Index copied_to;  // position in the scratch of the copy with contiguous rows; -1: rows are contiguous
  };
  struct Running {
    const T* tensor;
    std::array<const T*, most_dimensions> factors;
    T* scratch;
    T* result;
  };

  void set_result(const Layout& result) {
    const Index stride = result.strides[result.position(common_)];
    result_in_buffer_ = stride != 1 && rank_ > 1;
    result_ = result;
    if (!result_in_buffer_) {
      direct_nest_ = LoopNest(dimensions_of({}, {}, result_));
      return;
    }
    std::string indices;
    std::vector<Index> extents;
    for (const bool last : {false, true})
      for (const char index : result.indices)
        if ((index == common_) == last) {
          indices += index;
          extents.push_back(result.extents[result.position(index)]);
        }
    result_ = contiguous_layout(indices, extents);
    direct_nest_ = LoopNest(dimensions_of({}, {}, result_));
    buffer_nest_ = LoopNest(dimensions_of(result_, {}, result));
  }

  void set_axes(const std::vector<Layout>& operands) {
    const Layout& x = operands[tensor_];
    for (std::size_t d = 0; d < x.indices.size(); ++d) {
      Axis axis{x.extents[d], x.strides[d], 0, tensor_, result_.has(x.indices[d])};
      if (axis.kept) axis.result_stride = result_.strides[result_.position(x.indices[d])];
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (i != tensor_ && operands[i].has(x.indices[d])) axis.factor = i;
      axes_.push_back(axis);
    }
    std::stable_sort(axes_.begin(), axes_.end(), [](const Axis& a, const Axis& b) {
      const bool single_a = a.extent == 1, single_b = b.extent == 1;
      return single_a != single_b ? single_a : !single_a && a.tensor_stride > b.tensor_stride;
    });
  }

  bool adjoin(std::size_t outer, std::size_t inner) const {
    return axes_[outer].tensor_stride == axes_[inner].tensor_stride * axes_[inner].extent;
  }

  /// Splits the axes into those of the panel, those of the rows of a block, and those that loop.
  bool choose_groups() {
    const std::size_t last = axes_.size() - 1;
    if (axes_[last].extent > 1 && axes_[last].tensor_stride != 1) return false;
    for (const Axis& axis : axes_)
      if (axis.extent > 1 && axis.tensor_stride <= 0) return false;
    std::size_t innermost = last;
    while (axes_[innermost].kept) --innermost;
    const Index most_deep = std::max<Index>(16, detail::panel_bytes / (columns_ * static_cast<Index>(sizeof(T))));
    depth_ = axes_[innermost].extent;
    panel_.push_back(innermost);
    for (std::size_t d = innermost; d-- > 1 && !axes_[d].kept && adjoin(d, d + 1);) {  // axis 0 is left for rows
      if (depth_ * axes_[d].extent > most_deep) break;
      depth_ *= axes_[d].extent;
      panel_.insert(panel_.begin(), d);
    }
    panel_chunk_ = panel_.size() == 1 ? std::min(depth_, most_deep) : axes_[panel_.front()].extent;
    if (panel_.size() == 1) depth_ = panel_chunk_;
    return choose_tiles(innermost == last ? panel_.front() : last + 1);
  }

  /// :param end: After the innermost axis of the rows.
  bool choose_tiles(std::size_t end) {
    const Index most_rows = std::max<Index>(16, detail::product_bytes / (columns_ * static_cast<Index>(sizeof(T))));
    const bool transposed = end == axes_.size();
    std::vector<Index> tile_of(axes_.size(), 1);
    block_rows_ = 1;
    for (std::size_t d = end; d-- > 0;) {
      const bool fits = d + 1 == end || adjoin(d, d + 1);
      if (!fits || (transposed && !axes_[d].kept)) break;
      rows_.insert(rows_.begin(), d);
      const Index chunk = std::max<Index>(1, most_rows / block_rows_);
      const Index pieces = (axes_[d].extent + chunk - 1) / chunk;
      tile_of[d] = (axes_[d].extent + pieces - 1) / pieces;
      block_rows_ *= tile_of[d];
      if (pieces > 1) break;
    }
    row_stride_ = axes_[rows_.back()].tensor_stride;
    depth_stride_ = axes_[panel_.back()].tensor_stride;
    for (std::size_t d = 0; d < axes_.size(); ++d) {
      if (std::find(panel_.begin(), panel_.end(), d) != panel_.end()) continue;
      looped_.push_back(d);
      loops_.push_back({axes_[d].extent, {axes_[d].tensor_stride, 0, axes_[d].result_stride}, 5});
      tiles_.push_back(tile_of[d]);
    }
    for (std::size_t& row : rows_)
      row = static_cast<std::size_t>(std::find(looped_.begin(), looped_.end(), row) - looped_.begin());
    return is_matrix(block_rows_, depth_, row_stride_, depth_stride_);
  }

  /// Places of the buffers in the scratch.
  void lay_out() {
    const auto place = [this](Index count) {
      const Index at = scratch_count_;
      scratch_count_ += detail::aligned_count(count, sizeof(T));
      return at;
    };
    weights_at_ = place(columns_ * static_cast<Index>(2 * axes_.size() + 2));
    panel_at_ = place(depth_ * columns_);
    product_at_ = place(block_rows_ * columns_);
    for (std::size_t i = 0; i < factors_.size(); ++i)
      if (i != tensor_ && factors_[i].column_stride != 1 && rank_ > 1)
        factors_[i].copied_to = place(factors_[i].rows * rank_);
    if (result_in_buffer_) result_at_ = place(result_.count());
  }

  Index row_stride(std::size_t factor) const {
    return factors_[factor].copied_to < 0 ? factors_[factor].row_stride : rank_;
  }

  /// The rows of a factor, copied if they are not contiguous.
  const T* rows(std::size_t i, const T* data, T* scratch) const {
    const Factor& factor = factors_[i];
    if (factor.copied_to < 0) return data;
    T* const copied = scratch + factor.copied_to;
    for (Index row = 0; row < factor.rows; ++row)
      for (Index a = 0; a < rank_; ++a)
        copied[row * rank_ + a] = data[row * factor.row_stride + a * factor.column_stride];
    return copied;
  }

  /// Writes the rows of the panel from one of its axes on, of which `count` indices from `begin` on, times `weights`.
  void fill_panel(const Running& now, std::size_t level, Index begin, Index count, const T* weights, T*& target) const {
    const Axis& axis = axes_[panel_[level]];
    const T* factor = now.factors[axis.factor] + begin * row_stride(axis.factor);
    const bool last = level + 1 == panel_.size();
    T* const product = now.scratch + weights_at_ + static_cast<Index>(level + 1) * columns_;
    for (Index i = 0; i < count; ++i, factor += row_stride(axis.factor)) {
      T* const row = last ? target : product;
      detail::multiply_rows(rank_, weights, factor, row);
      if (last) {
        std::fill(row + rank_, row + columns_, T(0));
        target += columns_;
      } else {
        fill_panel(now, level + 1, 0, axes_[panel_[level + 1]].extent, product, target);
      }
    }
  }

  /// One pass over the tensor, with what the panel holds.
  void pass(const Running& now, const T* tensor, Index depth) const {
    TileWalk at(loops_, tiles_);
    T* const product = now.scratch + product_at_;
    do {
      Index count = 1;
      for (const std::size_t row : rows_) count *= at.extent(row);
      multiply_by_panel<T>(count, depth, {tensor + at.offset(A), row_stride_, depth_stride_}, now.scratch + panel_at_,
                           columns_, product);
      const T* rest = product;
      add_block(now, at, 0, outer_weights(now, at), rest, now.result + at.offset(C));
    } while (at.advance());
  }

  /// Product of the rows of the matrices of the loops around the block.
  const T* outer_weights(const Running& now, const TileWalk& at) const {
    const T* weights = now.scratch + weights_at_;
    T* next = now.scratch + weights_at_ + columns_;
    for (std::size_t d = 0; d < looped_.size(); ++d) {
      const Axis& axis = axes_[looped_[d]];
      if (axis.kept || std::find(rows_.begin(), rows_.end(), d) != rows_.end()) continue;
      const T* factor = now.factors[axis.factor] + at.first(d) * row_stride(axis.factor);
      detail::multiply_rows(rank_, weights, factor, next);
      weights = next;
      next += columns_;
    }
    return weights;
  }

  /// Adds the rows of the product to the result, from one of their axes on.
  void add_block(const Running& now, const TileWalk& at, std::size_t level, const T* weights, const T*& product,
                 T* out) const {
    const Axis& axis = axes_[looped_[rows_[level]]];
    const Index count = at.extent(rows_[level]), stride = axis.result_stride;
    const bool last = level + 1 == rows_.size();
    const Index factor_stride = axis.kept ? 0 : row_stride(axis.factor);
    const T* factor = axis.kept ? nullptr : now.factors[axis.factor] + at.first(rows_[level]) * factor_stride;
    if (last && axis.kept) {
      detail::add_weighted_rows(count, rank_, product, columns_, weights, out, stride);
    } else if (last) {
      detail::add_weighted_sum(count, rank_, product, columns_, factor, factor_stride, weights, out);
    } else {
      T* const next = now.scratch + weights_at_ + static_cast<Index>(axes_.size() + 1 + level) * columns_;
      for (Index i = 0; i < count; ++i) {
        if (!axis.kept) detail::multiply_rows(rank_, weights, factor + i * factor_stride, next);
        add_block(now, at, level + 1, axis.kept ? weights : next, product, out + i * stride);
      }
    }
    if (last) product += count * columns_;
  }

  std::size_t tensor_;
  std::vector<Factor> factors_;  // by operand; that of the tensor is not used
  Index rank_ = 1;               // extent of the common index
  char common_ = 0;
  Index columns_ = 1;  // of the panel: the rank, padded to whole vectors
  bool usable_ = false;
  std::vector<Axis> axes_;           // outermost first
  std::vector<std::size_t> panel_;   // positions in axes_
  Index panel_chunk_ = 1;            // of the outermost axis of the panel, in the panel at a time
  Index depth_ = 1;                  // rows of the panel
  std::vector<std::size_t> looped_;  // positions in axes_ of the loops
  Dimensions loops_;                 // [looped_]
  std::vector<Index> tiles_;         // [looped_]
  std::vector<std::size_t> rows_;    // positions in loops_ of the rows of a block
  Index block_rows_ = 1, row_stride_ = 1, depth_stride_ = 1;
  Layout result_;  // with the common index contiguous
  bool result_in_buffer_ = false;
  LoopNest direct_nest_, buffer_nest_;
  Index weights_at_ = 0, panel_at_ = 0, product_at_ = 0, result_at_ = 0, scratch_count_ = 0;
};

}  // namespace dace_redist
