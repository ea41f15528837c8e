// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "executor.hpp"
#include "core/error.hpp"

namespace dace_redist {
namespace {

struct Tensor {
  Layout layout;
  TensorPlace place;
};
using Tensors = std::vector<Tensor>;

class Planner {
 public:
  Planner(Layout result, const Executor& executor) : result_(std::move(result)), executor_(executor) {}

  ContractionPlan plan(const std::vector<Layout>& operands, const Path& path) {
    const auto is_empty = [](const Layout& layout) { return layout.count() == 0; };
    if (is_empty(result_)) return {};
    plan_.is_empty_sum = std::any_of(operands.begin(), operands.end(), is_empty);
    if (plan_.is_empty_sum) {
      add_pair(ones({}), ones({}), result_, TensorPlace{TensorPlace::result, 0});
      return std::move(plan_);
    }
    Tensors tensors;
    for (const Layout& layout : operands)
      tensors.push_back({layout, {TensorPlace::operand, static_cast<Index>(tensors.size())}});
    for (std::size_t step = 0; step < path.size(); ++step) {
      Tensors taken;
      for (const std::size_t position : path[step]) taken.push_back(tensors[position]);
      std::vector<std::size_t> positions = path[step];
      std::sort(positions.rbegin(), positions.rend());
      for (const std::size_t position : positions)
        tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(position));
      tensors.push_back(contract(taken, tensors, step + 1 == path.size()));
    }
    return std::move(plan_);
  }

 private:
  /// Contracts tensors, from left to right; the others determine which indices are still needed.
  Tensor contract(const Tensors& taken, const Tensors& others, bool last) {
    if (!executor_.batches)
      if (const std::optional<Tensor> product = add_khatri_rao(taken, others, last)) return *product;
    if (taken.size() == 1)
      return last ? contract_pair(taken[0], lone_indices(taken[0], {}, others), others, last) : taken[0];
    Tensor product = taken[0];
    for (std::size_t i = 1; i < taken.size(); ++i) {
      Tensors rest(taken.begin() + static_cast<std::ptrdiff_t>(i) + 1, taken.end());
      rest.insert(rest.end(), others.begin(), others.end());
      const Tensor a = summed(product, taken[i].layout, rest), b = summed(taken[i], a.layout, rest);
      product = contract_pair(a, b, rest, last && i + 1 == taken.size());
    }
    return product;
  }

  bool needed(char index, const Tensors& rest) const {
    return result_.has(index) ||
           std::any_of(rest.begin(), rest.end(), [&](const Tensor& tensor) { return tensor.layout.has(index); });
  }

  /// The dimensions of a tensor for whose indices `chosen` is true, appended to a contiguous layout.
  template <class Chosen>
  static Layout appended(Layout layout, const Layout& tensor, const Chosen& chosen) {
    for (std::size_t d = 0; d < tensor.indices.size(); ++d)
      if (chosen(tensor.indices[d])) layout.add(tensor.indices[d], tensor.extents[d], 0);
    Index stride = 1;
    for (std::size_t d = layout.extents.size(); d-- > 0; stride *= layout.extents[d]) layout.strides[d] = stride;
    return layout;
  }

  /// A constant: a product with it sums over its indices.
  Tensor ones(Layout layout) {
    if (!executor_.batches) std::fill(layout.strides.begin(), layout.strides.end(), 0);
    plan_.ones_count = std::max(plan_.ones_count, layout.count());
    return {std::move(layout), {TensorPlace::ones, 0}};
  }

  /// Ones with the indices that only a tensor has.
  Tensor lone_indices(const Tensor& tensor, const Layout& partner, const Tensors& rest) {
    return ones(appended({}, tensor.layout, [&](char index) { return !partner.has(index) && !needed(index, rest); }));
  }

  /// A tensor without the indices that only it has.
  Tensor summed(const Tensor& tensor, const Layout& partner, const Tensors& rest) {
    const auto kept = [&](char index) { return partner.has(index) || needed(index, rest); };
    if (std::all_of(tensor.layout.indices.begin(), tensor.layout.indices.end(), kept)) return tensor;
    return add_pair(tensor, lone_indices(tensor, partner, rest), appended({}, tensor.layout, kept));
  }

  /// An intermediate has the order that matrices give: what both have first, then a's indices, then b's.
  Tensor contract_pair(const Tensor& a, const Tensor& b, const Tensors& rest, bool last) {
    if (last) return add_pair(a, b, result_, TensorPlace{TensorPlace::result, 0});
    const auto chosen = [&](const Layout& other, bool shared) {
      return [&, shared](char index) { return other.has(index) == shared && needed(index, rest); };
    };
    Layout layout = appended({}, a.layout, chosen(b.layout, true));
    layout = appended(std::move(layout), a.layout, chosen(b.layout, false));
    return add_pair(a, b, appended(std::move(layout), b.layout, chosen(a.layout, false)));
  }

  Tensor intermediate(Layout layout) {
    const TensorPlace place{TensorPlace::kept, plan_.kept_count};
    plan_.kept_count += aligned_count(layout.count(), executor_.element_nbytes);
    return {std::move(layout), place};
  }

  Tensor add_pair(const Tensor& a, const Tensor& b, Layout layout, std::optional<TensorPlace> place = {}) {
    const Tensor c = place ? Tensor{std::move(layout), *place} : intermediate(std::move(layout));
    Dimensions dimensions = dimensions_of(a.layout, b.layout, c.layout);
    for (Dimension& dimension : dimensions)  // of a sum without terms: the constant has it, with stride 0
      if (dimension.holders == 1u << C) dimension.holders |= 1u << A;
    merge_dimensions(dimensions);
    if (dimensions.size() > max_dimensions)
      throw Error(text("a product has more than ", max_dimensions, " dimensions that cannot be merged"));
    PairStep step{{a.place, b.place, c.place}, LoopNest(dimensions)};
    const bool has_constant = a.place.kind == TensorPlace::ones || b.place.kind == TensorPlace::ones;
    if (executor_.batches || (executor_.has_blas && !has_constant)) {
      GemmPlan gemm = choose_gemm_plan(dimensions, executor_.element_nbytes, executor_.batches);
      const bool is_dot = gemm.size(Rows) == 1 && gemm.size(Columns) == 1;
      if (executor_.batches || (!is_dot && gemm.cost < std::get<LoopNest>(step.method).cost())) {
        plan_.scratch_count = std::max(plan_.scratch_count, gemm.scratch_count);
        step.method = std::move(gemm);
      }
    }
    plan_.steps.push_back(std::move(step));
    return c;
  }

  static bool has_rows(const Layout& layout, char common) {
    return layout.stride(common) == 1 || layout.extent(common) == 1;
  }
  /// A contiguous layout whose rows have the common index of a Khatri-Rao product.
  static Layout rows_of(const Layout& layout, char common) {
    Layout rows = appended({}, layout, [common](char index) { return index != common; });
    return appended(std::move(rows), layout, [common](char index) { return index == common; });
  }

  /// A product with a Khatri-Rao product, if the tensors are that and lie so that it can be computed. Factors whose
  /// rows are not contiguous are copied first, and a result likewise afterwards.
  std::optional<Tensor> add_khatri_rao(Tensors tensors, const Tensors& others, bool last) {
    std::vector<Layout> layouts;
    for (const Tensor& tensor : tensors) layouts.push_back(tensor.layout);
    const auto kept = [&](char index) { return needed(index, others); };
    Layout all = last ? result_ : Layout{};
    if (!last)
      for (const Layout& layout : layouts) all = appended(std::move(all), layout, kept);
    const std::optional<std::size_t> tensor = find_khatri_rao_tensor(layouts, all);
    if (!tensor) return {};
    const std::string& factor = layouts[*tensor == 0 ? 1 : 0].indices;
    const char common = layouts[*tensor].has(factor[0]) ? factor[1] : factor[0];
    for (std::size_t i = 0; i < layouts.size(); ++i)
      if (i != *tensor && !has_rows(layouts[i], common)) layouts[i] = rows_of(layouts[i], common);
    KhatriRaoPlan plan(layouts, *tensor, common, executor_);
    if (!plan.usable) return {};
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (i != *tensor && !has_rows(tensors[i].layout, common)) tensors[i] = add_pair(tensors[i], ones({}), layouts[i]);
    const bool direct = last && plan.threads == 1 && has_rows(result_, common);
    const Tensor product = direct ? Tensor{result_, {TensorPlace::result, 0}} : intermediate(rows_of(all, common));
    plan.set_result(product.layout, executor_);
    plan_.scratch_count = std::max(plan_.scratch_count, plan.scratch_count);
    KhatriRaoStep step{{}, product.place, std::move(plan)};
    for (const Tensor& operand : tensors) step.operands.push_back(operand.place);
    plan_.steps.push_back(std::move(step));
    if (direct || !last) return product;
    return add_pair(product, ones({}), result_, TensorPlace{TensorPlace::result, 0});
  }

  Layout result_;
  Executor executor_;
  ContractionPlan plan_;
};

}  // namespace

bool PlannedEinsum::update(const Index* layouts, std::size_t count) {
  if (is_planned_ && std::equal(layouts, layouts + count, layouts_.begin(), layouts_.end())) return false;
  is_planned_ = false;
  layouts_.assign(layouts, layouts + count);
  std::vector<Layout> operands = read_layouts(einsum_, layouts_);
  const Layout result = std::move(operands.back());
  operands.pop_back();
  plan_ = Planner(result, executor_).plan(operands, path_);
  return is_planned_ = true;
}

}  // namespace dace_redist
