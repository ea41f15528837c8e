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

#include "contraction/khatri_rao_plan.hpp"
#include "contraction/panel_product.hpp"
#include "contraction/resources.hpp"
#include "contraction/vector_loops.hpp"

namespace dace_redist {

/// One run of a plan.
template <class T>
class KhatriRao {
 public:
  /// \param operands  Function of an operand's position that returns its first element.
  /// \param scratch  [plan.scratch_count], aligned to 64 bytes.
  template <class Operands>
  KhatriRao(const KhatriRaoPlan& plan, const Operands& operands, T* result, T* scratch)
      : plan_(plan), tensor_(operands(plan.tensor)), panel_(scratch), own_(scratch + plan.own_at), result_(result) {
    for (std::size_t d = 0; d < plan_.axes.size(); ++d)
      if (!plan_.axes[d].kept) factors_.at(d) = operands(plan_.axes[d].factor);
  }

  /// `result = alpha * product + beta * result`.
  void run(T alpha, T beta) {
    plan_.result_nest.scale(beta, result_);
    const KhatriRaoPlan::Axis& first = plan_.axes[plan_.panel.front()];
    for (Index begin = 0; begin < first.extent; begin += plan_.panel_chunk) {
      std::fill(own_, own_ + plan_.rank, alpha);
      T* panel_end = panel_;
      fill_panel(0, begin, std::min(plan_.panel_chunk, first.extent - begin), own_, panel_end);
      pass(begin * first.tensor_stride, (panel_end - panel_) / plan_.columns);
    }
  }

 private:
  /// Writes the rows of the panel from one of its axes on, `count` indices from `begin` on, times `weights`.
  void fill_panel(std::size_t level, Index begin, Index count, const T* weights, T*& target) const {
    const std::size_t d = plan_.panel[level];
    const Index stride = plan_.axes[d].factor_stride;
    const T* factor = factors_[d] + begin * stride;
    const bool last = level + 1 == plan_.panel.size();
    T* const product = own_ + static_cast<Index>(level + 1) * plan_.columns;
    for (Index i = 0; i < count; ++i, factor += stride) {
      T* const row = last ? target : product;
      detail::multiply_rows(plan_.rank, weights, factor, row);
      if (last) {
        std::fill(row + plan_.rank, row + plan_.columns, T(0));
        target += plan_.columns;
      } else {
        fill_panel(level + 1, 0, plan_.axes[plan_.panel[level + 1]].extent, product, target);
      }
    }
  }

  /// One pass over the tensor, with the rows in the panel. Threads share the outermost loop, each with a result of its
  /// own unless the loop is one over the result.
  void pass(Index tensor_offset, Index depth) const {
    const std::size_t d = plan_.looped.front();
    const KhatriRaoPlan::Axis& outermost = plan_.axes[d];
    const int threads = plan_.threads;
    on_threads(threads, [&](int thread) {
      const Index begin = outermost.extent * thread / threads, end = outermost.extent * (thread + 1) / threads;
      KhatriRao part = *this;
      part.tensor_ += tensor_offset + begin * outermost.tensor_stride;
      part.own_ += thread * plan_.own_count;
      if (outermost.kept)
        part.result_ += begin * outermost.result_stride;
      else
        part.factors_[d] += begin * outermost.factor_stride;
      if (!outermost.kept && thread > 0) {
        part.result_ = part.own_ + plan_.result_at;
        std::fill(part.result_, part.result_ + plan_.result_count, T(0));
      }
      part.walk(end - begin, depth);
    });
    for (int thread = 1; thread < threads && !outermost.kept; ++thread)
      detail::multiply_add<false>(plan_.result_count, T(1),
                                  static_cast<const T*>(own_) + thread * plan_.own_count + plan_.result_at, 1, result_,
                                  1);
  }

  /// \param extent  Of the outermost loop.
  void walk(Index extent, Index depth) const {
    std::fill(own_, own_ + plan_.rank, T(1));
    Dimensions loops = plan_.loops;
    loops.front().extent = extent;
    TileWalk at(loops, plan_.tiles);
    T* const product = own_ + plan_.product_at;
    do {
      Index count = 1;
      for (const std::size_t row : plan_.rows) count *= at.extent(row);
      multiply_by_panel<T>(count, depth, {tensor_ + at.offset(A), plan_.row_stride, plan_.depth_stride}, panel_,
                           plan_.columns, product);
      const T* rest = product;
      add_block(at, 0, outer_weights(at), rest, result_ + at.offset(C));
    } while (at.advance());
  }

  /// Product of the rows of the matrices of the loops around the block.
  const T* outer_weights(const TileWalk& at) const {
    const T* weights = own_;
    T* next = own_ + plan_.columns;
    for (std::size_t loop = 0; loop < plan_.looped.size(); ++loop) {
      const std::size_t d = plan_.looped[loop];
      if (plan_.axes[d].kept || std::find(plan_.rows.begin(), plan_.rows.end(), loop) != plan_.rows.end()) continue;
      detail::multiply_rows(plan_.rank, weights, factors_[d] + at.first(loop) * plan_.axes[d].factor_stride, next);
      weights = next;
      next += plan_.columns;
    }
    return weights;
  }

  /// Adds the rows of the product to the result, from one of their axes on.
  void add_block(const TileWalk& at, std::size_t level, const T* weights, const T*& product, T* out) const {
    const std::size_t loop = plan_.rows[level], d = plan_.looped[loop];
    const KhatriRaoPlan::Axis& axis = plan_.axes[d];
    const Index count = at.extent(loop), rank = plan_.rank, columns = plan_.columns;
    const T* factor = axis.kept ? nullptr : factors_[d] + at.first(loop) * axis.factor_stride;
    if (level + 1 == plan_.rows.size()) {
      if (axis.kept)
        detail::add_weighted_rows(count, rank, product, columns, weights, out, axis.result_stride);
      else
        detail::add_weighted_sum(count, rank, product, columns, factor, axis.factor_stride, weights, out);
      product += count * columns;
      return;
    }
    T* const next = own_ + static_cast<Index>(plan_.axes.size() + 1 + level) * columns;
    for (Index i = 0; i < count; ++i) {
      if (!axis.kept) detail::multiply_rows(rank, weights, factor + i * axis.factor_stride, next);
      add_block(at, level + 1, axis.kept ? weights : next, product, out + i * axis.result_stride);
    }
  }

  const KhatriRaoPlan& plan_;
  const T* tensor_;
  std::array<const T*, max_dimensions> factors_{};  // by axis
  T* panel_;
  T* own_;  // buffers of a thread: rows of weights, of which the first is of ones; a block's product; a result
  T* result_;
};

}  // namespace dace_redist
