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
#include <string>
#include <vector>

#include "contraction/khatri_rao_plan.hpp"
#include "contraction/khatri_rao_rows.hpp"
#include "contraction/loops.hpp"
#include "contraction/panel_product.hpp"
#include "contraction/threads.hpp"
#include "contraction/workspace.hpp"

namespace dace_redist {

/// The product, planned once for given extents and strides.
template <class T>
class KhatriRao {
 public:
  /// \param operands  For which find_khatri_rao_tensor() found `tensor`; no extent 0.
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
    threads_ = has_panel_kernel<T>(columns_) ? thread_count() : 1;  // else BLAS has the threads
    set_result(result);
    plan_ = KhatriRaoPlan(operands, tensor, result_, columns_ * static_cast<Index>(sizeof(T)));
    if (plan_.usable) lay_out();
  }

  /// Whether the tensor lies so that its rows or columns are matrices; if not, run() must not be called.
  bool usable() const { return plan_.usable; }

  /// Elements of the buffers that run() needs.
  Index scratch_count() const { return scratch_count_; }

  /// \param operands  As the layouts were.
  /// \param scratch  [scratch_count()], aligned to 64 bytes.
  template <class Operands>
  void run(T alpha, const Operands& operands, T beta, T* result, T* scratch) const {
    T* const own = scratch + own_at_;
    Running now{operands(tensor_), {}, scratch + panel_at_, own, result_in_buffer_ ? own + result_at_ : result};
    for (std::size_t i = 0; i < factors_.size(); ++i)
      now.factors.at(i) = i == tensor_ ? nullptr : rows(i, operands(i), scratch);
    direct_nest_.scale(result_in_buffer_ ? T(0) : beta, now.result);
    const KhatriRaoPlan::Axis& first = plan_.axes[plan_.panel.front()];
    for (Index begin = 0; begin < first.extent; begin += plan_.panel_chunk) {
      std::fill(own, own + rank_, alpha);
      T* panel_end = now.panel;
      fill_panel(now, 0, begin, std::min(plan_.panel_chunk, first.extent - begin), own, panel_end);
      pass(now, begin * first.tensor_stride, (panel_end - now.panel) / columns_);
    }
    const T one(1);
    if (result_in_buffer_) buffer_nest_.run(T(1), static_cast<const T*>(now.result), &one, beta, result);
  }

 private:
  struct Factor {
    Index row_stride, column_stride, rows;
    Index copied_to;  // position in the scratch of the copy with contiguous rows; -1: rows are contiguous
  };
  struct Running {
    const T* tensor;
    std::array<const T*, most_dimensions> factors;
    T* panel;
    T* own;  // buffers of a thread: rows of weights, of which the first is of ones, a block's product, a result
    T* result;
  };

  void set_result(const Layout& result) {
    const Index stride = result.strides[result.position(common_)];
    result_in_buffer_ = threads_ > 1 || (stride != 1 && rank_ > 1);
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

  /// Places of the buffers in the scratch.
  void lay_out() {
    const auto place = [](Index& total, Index count) {
      const Index at = total;
      total += detail::aligned_count(count, sizeof(T));
      return at;
    };
    threads_ = static_cast<int>(std::min<Index>(threads_, plan_.loops.front().extent));
    place(own_count_, columns_ * static_cast<Index>(2 * plan_.axes.size() + 2));
    product_at_ = place(own_count_, plan_.block_rows * columns_);
    if (result_in_buffer_) result_at_ = place(own_count_, result_.count());
    panel_at_ = place(scratch_count_, plan_.depth * columns_);
    own_at_ = place(scratch_count_, threads_ * own_count_);
    for (std::size_t i = 0; i < factors_.size(); ++i)
      if (i != tensor_ && factors_[i].column_stride != 1 && rank_ > 1)
        factors_[i].copied_to = place(scratch_count_, factors_[i].rows * rank_);
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
    const KhatriRaoPlan::Axis& axis = plan_.axes[plan_.panel[level]];
    const T* factor = now.factors[axis.factor] + begin * row_stride(axis.factor);
    const bool last = level + 1 == plan_.panel.size();
    T* const product = now.own + static_cast<Index>(level + 1) * columns_;
    for (Index i = 0; i < count; ++i, factor += row_stride(axis.factor)) {
      T* const row = last ? target : product;
      detail::multiply_rows(rank_, weights, factor, row);
      if (last) {
        std::fill(row + rank_, row + columns_, T(0));
        target += columns_;
      } else {
        fill_panel(now, level + 1, 0, plan_.axes[plan_.panel[level + 1]].extent, product, target);
      }
    }
  }

  /// One pass over the tensor, with what the panel holds. Threads share the outermost loop, each with a result of its
  /// own unless the loop is one over the result.
  void pass(const Running& now, Index tensor_offset, Index depth) const {
    const KhatriRaoPlan::Axis& outermost = plan_.axes[plan_.looped.front()];
    on_threads(threads_, [&](int thread) {
      const Index begin = outermost.extent * thread / threads_, end = outermost.extent * (thread + 1) / threads_;
      Running part = now;
      part.tensor += tensor_offset + begin * outermost.tensor_stride;
      part.own += thread * own_count_;
      if (outermost.kept)
        part.result += begin * outermost.result_stride;
      else
        part.factors.at(outermost.factor) += begin * row_stride(outermost.factor);
      if (!outermost.kept && thread > 0) {
        part.result = part.own + result_at_;
        std::fill(part.result, part.result + result_.count(), T(0));
      }
      walk(part, end - begin, depth);
    });
    for (int thread = 1; thread < threads_ && !outermost.kept; ++thread)
      detail::multiply_add<false>(result_.count(), T(1),
                                  static_cast<const T*>(now.own) + thread * own_count_ + result_at_, 1, now.result, 1);
  }

  /// \param extent: Of the outermost loop.
  void walk(const Running& now, Index extent, Index depth) const {
    std::fill(now.own, now.own + rank_, T(1));
    Dimensions loops = plan_.loops;
    loops.front().extent = extent;
    TileWalk at(loops, plan_.tiles);
    T* const product = now.own + product_at_;
    do {
      Index count = 1;
      for (const std::size_t row : plan_.rows) count *= at.extent(row);
      multiply_by_panel<T>(count, depth, {now.tensor + at.offset(A), plan_.row_stride, plan_.depth_stride}, now.panel,
                           columns_, product);
      const T* rest = product;
      add_block(now, at, 0, outer_weights(now, at), rest, now.result + at.offset(C));
    } while (at.advance());
  }

  /// Product of the rows of the matrices of the loops around the block.
  const T* outer_weights(const Running& now, const TileWalk& at) const {
    const T* weights = now.own;
    T* next = now.own + columns_;
    for (std::size_t d = 0; d < plan_.looped.size(); ++d) {
      const KhatriRaoPlan::Axis& axis = plan_.axes[plan_.looped[d]];
      if (axis.kept || std::find(plan_.rows.begin(), plan_.rows.end(), d) != plan_.rows.end()) continue;
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
    const KhatriRaoPlan::Axis& axis = plan_.axes[plan_.looped[plan_.rows[level]]];
    const Index count = at.extent(plan_.rows[level]), stride = axis.result_stride;
    const bool last = level + 1 == plan_.rows.size();
    const Index factor_stride = axis.kept ? 0 : row_stride(axis.factor);
    const T* factor = axis.kept ? nullptr : now.factors[axis.factor] + at.first(plan_.rows[level]) * factor_stride;
    if (last && axis.kept) {
      detail::add_weighted_rows(count, rank_, product, columns_, weights, out, stride);
    } else if (last) {
      detail::add_weighted_sum(count, rank_, product, columns_, factor, factor_stride, weights, out);
    } else {
      T* const next = now.own + static_cast<Index>(plan_.axes.size() + 1 + level) * columns_;
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
  KhatriRaoPlan plan_;
  Layout result_;  // with the common index contiguous
  bool result_in_buffer_ = false;
  LoopNest direct_nest_, buffer_nest_;
  int threads_ = 1;
  Index panel_at_ = 0, own_at_ = 0, scratch_count_ = 0;   // in the scratch; the first thread's buffers
  Index product_at_ = 0, result_at_ = 0, own_count_ = 0;  // in the buffers of a thread
};

}  // namespace dace_redist
