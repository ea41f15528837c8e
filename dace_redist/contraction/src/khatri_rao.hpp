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
#include <utility>
#include <vector>

#include "executor.hpp"
#include "khatri_rao_plan.hpp"
#include "panel_product.hpp"
#include "vector_loops.hpp"

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
    block_.resize(plan_.rows.size());
  }

  /// `result = alpha * product + beta * result`.
  void run(T alpha, T beta) {
    plan_.result_nest.scale(beta, result_);
    const KhatriRaoPlan::Axis& first = plan_.axes[plan_.panel.front()];
    for (Index begin = 0; begin < first.extent; begin += plan_.panel_chunk) {
      Index depth = set_first_row(alpha, panel_);
      for (const std::size_t d : plan_.panel) {
        const bool is_first = d == plan_.panel.front();
        multiply_rows(d, is_first ? begin : 0,
                      is_first ? std::min(plan_.panel_chunk, first.extent - begin) : plan_.axes[d].extent, panel_,
                      depth);
      }
      pass(begin * first.strides[A], depth);
    }
  }

 private:
  /// Begins a Khatri-Rao product: one row. Returns the number of rows.
  Index set_first_row(T value, T* rows) const {
    std::fill(rows, rows + plan_.rank, value);
    std::fill(rows + plan_.rank, rows + plan_.columns, T(0));
    return 1;
  }

  /// Multiplies the rows of a Khatri-Rao product by `extent` rows of an axis' matrix, in place: from the last one on.
  void multiply_rows(std::size_t d, Index begin, Index extent, T* rows, Index& count) const {
    const Index stride = plan_.axes[d].factor_stride;
    for (Index row = count; row-- > 0;)
      for (Index i = extent; i-- > 0;) {
        const T *x = rows + row * plan_.columns, *y = factors_[d] + (begin + i) * stride;
        T* const product = rows + (row * extent + i) * plan_.columns;
        for (Index a = 0; a < plan_.rank; ++a) product[a] = detail::multiply(x[a], y[a]);
        std::fill(product + plan_.rank, product + plan_.columns, T(0));
      }
    count *= extent;
  }

  /// One pass over the tensor, with the rows in the panel. Threads share the outermost loop, each with a result of its
  /// own unless the loop is one over the result.
  void pass(Index tensor_offset, Index depth) const {
    const KhatriRaoPlan::Axis& outermost = plan_.axes.front();
    const int threads = plan_.threads;
    parallel_for(threads, [&](int thread) {
      const Index begin = outermost.extent * thread / threads, end = outermost.extent * (thread + 1) / threads;
      KhatriRao part = *this;
      part.tensor_ += tensor_offset + begin * outermost.strides[A];
      part.own_ += thread * plan_.own_count;
      if (outermost.kept)
        part.result_ += begin * outermost.strides[C];
      else
        part.factors_.front() += begin * outermost.factor_stride;
      if (!outermost.kept && thread > 0) {
        part.result_ = part.own_ + plan_.result_at;
        std::fill(part.result_, part.result_ + plan_.result_count, T(0));
      }
      part.walk(end - begin, depth);
    });
    for (int thread = 1; thread < threads && !outermost.kept; ++thread) {
      const T* own_result = own_ + thread * plan_.own_count + plan_.result_at;
      for (Index i = 0; i < plan_.result_count; ++i) result_[i] += own_result[i];
    }
  }

  using AxisWalk = TileWalk<KhatriRaoPlan::Axis>;

  /// \param extent  Of the outermost loop.
  void walk(Index extent, Index depth) {
    std::vector<KhatriRaoPlan::Axis> axes = plan_.axes;
    axes.front().extent = extent;
    AxisWalk at(axes);
    do {
      Index count = 1;
      for (const std::size_t row : plan_.rows) count *= at.extent(row);
      multiply_by_panel<T>(count, depth, {tensor_ + at.offset(A), plan_.row_stride, plan_.depth_stride}, panel_,
                           plan_.columns, own_ + plan_.product_at);
      set_weights(at);
      add_block(at, result_ + at.offset(C));
    } while (at.advance());
  }

  /// Khatri-Rao product of the matrices of the loops, but for the innermost one, for the indices of a block.
  void set_weights(const AxisWalk& at) {
    T* const weights = own_ + plan_.weights_at;
    Index count = set_first_row(T(1), weights);
    for (std::size_t d = 0; d < plan_.axes.size(); ++d)
      if (!plan_.axes[d].kept && !plan_.axes[d].in_panel && d != plan_.rows.back())
        multiply_rows(d, at.first(d), at.extent(d), weights, count);
  }

  /// Adds the rows of the product, times their weights, to the result.
  void add_block(const AxisWalk& at, T* out) {
    Index product_step = plan_.columns, weights_step = plan_.columns;
    for (std::size_t row = block_.size(); row-- > 0;) {
      const KhatriRaoPlan::Axis& axis = plan_.axes[plan_.rows[row]];
      const bool has_weights = !axis.kept && row + 1 < block_.size();
      block_[row] = {at.extent(plan_.rows[row]), {product_step, has_weights ? weights_step : 0, axis.strides[C]}};
      product_step *= block_[row].extent;
      if (has_weights) weights_step *= block_[row].extent;
    }
    const Index count = std::exchange(block_.back().extent, 1);  // the walk is over the others
    const std::size_t d = plan_.rows.back();
    const KhatriRaoPlan::Axis& axis = plan_.axes[d];
    TileWalk in(block_);
    do {
      const T* product = own_ + plan_.product_at + in.offset(A);
      const T* weights = own_ + plan_.weights_at + in.offset(B);
      if (axis.kept)
        detail::add_weighted_rows(count, plan_.rank, product, plan_.columns, weights, out + in.offset(C),
                                  axis.strides[C]);
      else
        detail::add_weighted_sum(count, plan_.rank, product, plan_.columns,
                                 factors_[d] + at.first(d) * axis.factor_stride, axis.factor_stride, weights,
                                 out + in.offset(C));
    } while (in.advance());
  }

  const KhatriRaoPlan& plan_;
  const T* tensor_;
  std::array<const T*, max_dimensions> factors_{};  // by axis
  T* panel_;
  T* own_;  // buffers of a thread: weights and the product of a block, a result
  T* result_;
  Dimensions block_;  // [rows], A: the product, B: the weights, C: the result
};

}  // namespace dace_redist
