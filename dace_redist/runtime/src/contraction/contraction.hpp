// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// An einsum of any number of tensors: steps of two tensors each, planned at the first run and when extents change.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contraction/einsum.hpp"
#include "contraction/khatri_rao.hpp"
#include "contraction/pair.hpp"
#include "contraction/workspace.hpp"

namespace dace_redist {

/// Values handed over by generated code as a braced list, or an array with its length. Not owned.
template <class V>
struct Values {
  Values(std::initializer_list<V> values) : Values(values.begin(), values.size()) {}
  Values(const V* first, std::size_t number) : begin(first), count(number) {}
  const V& operator[](std::size_t i) const { return begin[i]; }

  const V* begin;
  std::size_t count;
};

/// An einsum over arrays in memory, `result = alpha * einsum + beta * result`.
///
/// The plan, with its workspace, is kept until other extents or strides come.
template <class T>
class Contraction {
 public:
  /// \param expression  With an arrow, such as `ijk,ja,ka->ia`.
  /// \param path  As opt_einsum's; empty: all tensors in one step.
  /// \throws Error if the expression is wrong or the path does not end with one tensor.
  explicit Contraction(const std::string& expression, Path path = {})
      : expression_(expression), einsum_(expression), path_(complete_path(expression, einsum_, std::move(path))) {}

  /// \param layouts  For each operand, then for the result: extents, then strides in elements.
  /// \param operands  Their first elements; may be null where an extent is 0.
  /// \throws Error if extents clash.
  void run(Values<Index> layouts, Values<const T*> operands, T* result, T alpha = T(1), T beta = T(0)) {
    if (!planned_ || layouts.count != layouts_.size() || !std::equal(layouts_.begin(), layouts_.end(), layouts.begin))
      make_plan({layouts.begin, layouts.begin + layouts.count});
    if (empty_sum_) {
      if (result_nest_) result_nest_->scale(beta, result);
      return;
    }
    T* const memory = static_cast<T*>(workspace_.reserve(workspace_nbytes()));
    const T one(1);
    for (const PlannedStep& step : steps_) {
      const auto source = [&](const TensorLocation& location) {
        if (location.input) return operands[static_cast<std::size_t>(location.at)];
        return static_cast<const T*>(location.at < 0 ? &one : memory + location.at);
      };
      T* const target = step.last ? result : memory + step.target;
      const T step_alpha = step.last ? alpha : T(1), step_beta = step.last ? beta : T(0);
      T* const scratch = memory + kept_count_;
      if (step.fused)
        step.fused->run(
            step_alpha, [&](std::size_t i) { return source(step.operands[i]); }, step_beta, target, scratch);
      else
        step.pair->run(step_alpha, source(step.operands[0]), source(step.operands[1]), step_beta, target, scratch);
    }
  }

  /// Bytes of the buffers for intermediate tensors and copies, once planned.
  std::size_t workspace_nbytes() const { return static_cast<std::size_t>(kept_count_ + scratch_count_) * sizeof(T); }

 private:
  /// Where a tensor lies: an operand, or from `at` on in the workspace; less than 0: the number 1.
  struct TensorLocation {
    bool input = false;
    Index at = -1;
  };
  struct LocatedTensor {
    Layout layout;
    TensorLocation location;
  };
  /// Two tensors, or one and the number 1; or a tensor and the matrices of a Khatri-Rao product.
  struct PlannedStep {
    std::optional<Pair<T>> pair;
    std::optional<KhatriRao<T>> fused;
    std::vector<TensorLocation> operands;
    Index target;
    bool last;
  };

  void make_plan(std::vector<Index> layouts) {
    planned_ = false;
    TensorLayouts all = read_layouts(expression_, einsum_, layouts);
    std::vector<LocatedTensor> tensors;
    for (Layout& layout : all.operands)
      tensors.push_back({std::move(layout), {true, static_cast<Index>(tensors.size())}});
    result_ = std::move(all.result);
    steps_.clear();
    kept_count_ = scratch_count_ = 0;
    empty_sum_ =
        std::any_of(tensors.begin(), tensors.end(), [](const LocatedTensor& t) { return t.layout.count() == 0; });
    result_nest_.reset();
    if (result_.count() != 0) result_nest_ = LoopNest(dimensions_of({}, {}, result_));
    if (!empty_sum_) add_steps(std::move(tensors));
    layouts_ = std::move(layouts);
    planned_ = true;
  }

  void add_steps(std::vector<LocatedTensor> left) {
    for (const auto& positions : path_) {
      std::vector<LocatedTensor> taken;
      for (const std::size_t position : positions) taken.push_back(left[position]);
      std::vector<std::size_t> sorted = positions;
      std::sort(sorted.rbegin(), sorted.rend());
      for (const std::size_t position : sorted) left.erase(left.begin() + static_cast<std::ptrdiff_t>(position));
      left.push_back(add_step(taken, left));
    }
  }

  /// Contracts tensors, from left to right; the others say which indices are still needed.
  LocatedTensor add_step(const std::vector<LocatedTensor>& taken, const std::vector<LocatedTensor>& others) {
    if (taken.size() == 1) return others.empty() ? add_pair(taken[0], {}, {}, true) : taken[0];
    if (std::optional<LocatedTensor> fused = add_fused(taken, others)) return *fused;
    LocatedTensor product = taken[0];
    for (std::size_t i = 1; i < taken.size(); ++i) {
      std::vector<LocatedTensor> rest(taken.begin() + static_cast<std::ptrdiff_t>(i) + 1, taken.end());
      rest.insert(rest.end(), others.begin(), others.end());
      const auto a = summed(product, taken[i], rest), b = summed(taken[i], product, rest);
      product = add_pair(a, b, rest, rest.empty());
    }
    return product;
  }

  /// A tensor without the indices that no other one needs.
  LocatedTensor summed(const LocatedTensor& tensor, const LocatedTensor& partner,
                       const std::vector<LocatedTensor>& rest) {
    const auto kept = [&](char index) { return partner.layout.has(index) || needed(index, rest); };
    if (std::all_of(tensor.layout.indices.begin(), tensor.layout.indices.end(), kept)) return tensor;
    std::vector<LocatedTensor> others = rest;
    others.push_back(partner);
    return add_pair(tensor, {}, others, false);
  }

  bool needed(char index, const std::vector<LocatedTensor>& rest) const {
    return result_.has(index) ||
           std::any_of(rest.begin(), rest.end(), [index](const LocatedTensor& t) { return t.layout.has(index); });
  }

  LocatedTensor add_pair(const LocatedTensor& a, const LocatedTensor& b, const std::vector<LocatedTensor>& rest,
                         bool last) {
    Layout layout = last ? result_ : intermediate(a.layout, b.layout, rest);
    PlannedStep step{Pair<T>(dimensions_of(a.layout, b.layout, layout)), {}, {a.location, b.location}, 0, last};
    const Index scratch_count = step.pair->scratch_count();
    return add(std::move(step), std::move(layout), scratch_count);
  }

  /// A step for a product with a Khatri-Rao product, if the tensors are that.
  std::optional<LocatedTensor> add_fused(const std::vector<LocatedTensor>& taken,
                                         const std::vector<LocatedTensor>& others) {
    std::vector<Layout> layouts;
    PlannedStep step{{}, {}, {}, 0, others.empty()};
    for (const LocatedTensor& tensor : taken) {
      layouts.push_back(tensor.layout);
      step.operands.push_back(tensor.location);
    }
    Layout layout = step.last ? result_ : fused_intermediate(layouts, others);
    const std::optional<std::size_t> tensor = find_khatri_rao_tensor(layouts, layout);
    if (!tensor) return {};
    step.fused.emplace(layouts, *tensor, layout);
    if (!step.fused->usable()) return {};
    const Index scratch_count = step.fused->scratch_count();
    return add(std::move(step), std::move(layout), scratch_count);
  }

  LocatedTensor add(PlannedStep step, Layout layout, Index scratch_count) {
    step.target = kept_count_;
    if (!step.last) kept_count_ += detail::aligned_count(layout.count(), sizeof(T));
    scratch_count_ = std::max(scratch_count_, scratch_count);
    steps_.push_back(std::move(step));
    return {std::move(layout), {false, steps_.back().target}};
  }

  /// What is still needed of some tensors, in their order.
  Layout fused_intermediate(const std::vector<Layout>& layouts, const std::vector<LocatedTensor>& rest) const {
    Layout all;
    for (const Layout& layout : layouts)
      for (std::size_t d = 0; d < layout.indices.size(); ++d)
        if (!all.has(layout.indices[d]) && needed(layout.indices[d], rest))
          all.add(layout.indices[d], layout.extents[d], 0);
    return contiguous_layout(all.indices, all.extents);
  }

  /// An intermediate in the order that a product of matrices gives: what both have first, then a's indices, then b's.
  Layout intermediate(const Layout& a, const Layout& b, const std::vector<LocatedTensor>& rest) const {
    std::string indices;
    std::vector<Index> extents;
    const auto add = [&](const Layout& of, const auto& chosen) {
      for (std::size_t d = 0; d < of.indices.size(); ++d) {
        if (!chosen(of.indices[d]) || !needed(of.indices[d], rest)) continue;
        indices += of.indices[d];
        extents.push_back(of.extents[d]);
      }
    };
    add(a, [&](char index) { return b.has(index); });
    add(a, [&](char index) { return !b.has(index); });
    add(b, [&](char index) { return !a.has(index); });
    return contiguous_layout(indices, extents);
  }

  std::string expression_;
  Einsum einsum_;
  Path path_;
  bool planned_ = false;
  std::vector<Index> layouts_;  // those of the plan
  Layout result_;
  std::optional<LoopNest> result_nest_;  // of the result alone, unless it is empty
  std::vector<PlannedStep> steps_;
  bool empty_sum_ = false;
  Index kept_count_ = 0, scratch_count_ = 0;  // elements of intermediates; of the buffers that all steps share
  Workspace workspace_;
};

}  // namespace dace_redist
