// SPDX-License-Identifier: BSD-3-Clause
#include "gemm_plan.hpp"

#include <algorithm>
#include <utility>

#include "executor.hpp"
#include "core/error.hpp"

namespace dace_redist {

Index GemmPlan::size(GemmSide side) const {
  Index product = 1;
  for (const std::size_t d : groups[side]) product *= dimensions[d].tile;
  return product;
}

Index GemmPlan::size(Operand tensor) const {
  Index product = 1;
  for (const Dimension& dimension : dimensions)
    if (dimension.in(tensor)) product *= dimension.tile;
  return product;
}

std::array<GemmSide, 2> GemmPlan::buffer_sides(Operand tensor) const {
  const auto min_stride = [&](GemmSide side) {
    Index stride = std::numeric_limits<Index>::max();
    for (const std::size_t d : groups[side]) stride = std::min(stride, std::abs(dimensions[d].strides[tensor]));
    return stride;
  };
  const auto [first, second] = sides_of[tensor];
  if (min_stride(first) < min_stride(second)) return {second, first};
  return {first, second};
}

StridedBlock GemmPlan::block(Operand tensor, const TileWalk<>& at) const {
  StridedBlock result;
  const auto [outer, inner] = buffer_sides(tensor);
  for (const GemmSide side : {Around, outer, inner})
    for (const std::size_t d : groups[side]) {
      if (!dimensions[d].in(tensor) || dimensions[d].tile == 1) continue;
      if (result.ndim == max_block_dims)
        throw Error(text("a tensor has more than ", max_block_dims, " dimensions that cannot be merged"));
      const auto position = static_cast<std::size_t>(result.ndim++);
      result.counts[position] = at.extent(d);
      result.source_strides[position] = dimensions[d].strides[tensor];
    }
  Index stride = 1;
  for (auto d = static_cast<std::size_t>(result.ndim); d-- > 0; stride *= result.counts[d])
    result.target_strides[d] = stride;
  return result;
}

namespace {

/// Bytes of the tile of one tensor that is copied: the larger, the fewer times a tile is copied.
constexpr Index max_copied_bytes = Index{1} << 21;

/// Whether the dimensions of a group follow each other in a tensor.
bool follow(const GemmPlan& plan, GemmSide side, Operand tensor) {
  const GemmPlan::Group& group = plan.groups[side];
  for (std::size_t i = 0; i + 1 < group.size(); ++i)
    if (!adjoin(plan.dimensions[group[i]], plan.dimensions[group[i + 1]], tensor)) return false;
  return plan.stride(tensor, side) >= 0;
}

/// Whether BLAS can use a tensor's tiles where they lie.
bool in_place(const GemmPlan& plan, Operand tensor, bool batched) {
  const auto [first, second] = sides_of[tensor];
  if (!follow(plan, first, tensor) || !follow(plan, second, tensor)) return false;
  if (batched && !follow(plan, Around, tensor)) return false;
  return matrix_layout(plan.size(first), plan.size(second), plan.stride(tensor, first), plan.stride(tensor, second))
      .valid;
}

/// Whether one batch does all: its matrices hold all sums, and the same tensors hold all dimensions around them.
bool is_one_batch(const GemmPlan& plan) {
  const GemmPlan::Group& around = plan.groups[Around];
  return std::all_of(around.begin(), around.end(), [&](std::size_t d) {
    const unsigned holders = plan.dimensions[d].holders;
    return holders != holders_of[Sums] && holders == plan.dimensions[around.front()].holders;
  });
}

/// Cuts a group, from its outermost dimension on, to at most `target` elements.
void cut(GemmPlan& plan, GemmSide side, Index target) {
  for (const std::size_t d : plan.groups[side]) {
    const Index size = plan.size(side);
    if (size <= target) return;
    Index& tile = plan.dimensions[d].tile;
    tile = std::max<Index>(1, target / (size / tile));
  }
}

/// Cuts the tiles so that a copy has at most `max_count` elements.
void cut_tiles(GemmPlan& plan, Index max_count) {
  constexpr Index deep = 256;  // sums of this length keep the arithmetic busy
  for (const GemmSide side : {Rows, Columns, Sums}) cut(plan, side, max_blas_extent);
  for (const Operand tensor : {A, B}) {
    if (!plan.copied[tensor] || plan.size(tensor) <= max_count) continue;
    const GemmSide other = tensor == A ? Rows : Columns;
    cut(plan, Sums, std::max(deep, max_count / plan.size(other)));
    cut(plan, other, std::max<Index>(1, max_count / plan.size(Sums)));
  }
  if (plan.copied[C] && plan.size(C) > max_count) {
    const auto [shorter, longer] =
        std::minmax({Rows, Columns}, [&](GemmSide x, GemmSide y) { return plan.size(x) < plan.size(y); });
    cut(plan, longer, std::max(deep, max_count / plan.size(shorter)));
    cut(plan, shorter, std::max<Index>(1, max_count / plan.size(longer)));
  }
}

/// Number of tiles in the dimensions that `holds` is true for.
template <class Holds>
double tile_count(const GemmPlan& plan, const Holds& holds) {
  double count = 1;
  for (const Dimension& dimension : plan.dimensions)
    if (holds(dimension)) count *= static_cast<double>(ceil_div(dimension.extent, dimension.tile));
  return count;
}

/// Estimated time in accesses to elements; a call and a copy have an overhead. A GPU reads whole lines.
double cost_of(const GemmPlan& plan, bool batched) {
  constexpr double call = 250, copy = 300, read = 0.35, write = 0.5, multiply = 0.03;
  const double line = batched ? 8 : 1;
  const double calls = tile_count(plan, [](const Dimension&) { return true; });
  double cost = calls * call, steps = 1;
  for (const Dimension& dimension : plan.dimensions) steps *= static_cast<double>(dimension.extent);
  cost += multiply * steps;
  for (const Operand tensor : {A, B, C}) {
    const auto size = static_cast<double>(plan.size(tensor));
    const GemmSide inner = plan.buffer_sides(tensor)[1];
    const bool contiguous = plan.copied[tensor] || plan.stride(tensor, inner) == 1;
    const double run = contiguous ? static_cast<double>(plan.size(inner)) : 1;
    cost += calls * (tensor == C ? write : read) * size * std::max(1.0, std::min(size, line) / run);
    if (!plan.copied[tensor]) continue;
    cost += tile_count(plan, [tensor](const Dimension& d) { return d.in(tensor); }) * (copy + size);
  }
  return cost;
}

GemmPlan::Group sorted_by_stride(const Dimensions& dimensions, GemmPlan::Group group, Operand tensor) {
  std::stable_sort(group.begin(), group.end(), [&](std::size_t x, std::size_t y) {
    return dimensions[x].strides[tensor] > dimensions[y].strides[tensor];
  });
  return group;
}

/// Candidates for one side of the matrices: each dimension, those that follow each other in a tensor, and all.
std::vector<GemmPlan::Group> side_options(const Dimensions& dimensions, GemmSide side) {
  GemmPlan::Group all;
  for (std::size_t d = 0; d < dimensions.size(); ++d)
    if (dimensions[d].holders == holders_of[side]) all.push_back(d);
  if (all.empty()) return {{}};
  std::vector<GemmPlan::Group> options;
  const auto add = [&](GemmPlan::Group group) {
    if (std::find(options.begin(), options.end(), group) == options.end()) options.push_back(std::move(group));
  };
  for (const Operand tensor : {A, B, C}) {
    if ((holders_of[side] >> tensor & 1u) == 0) continue;
    const GemmPlan::Group sorted = sorted_by_stride(dimensions, all, tensor);
    add(sorted);
    for (auto last = sorted.begin(); last != sorted.end(); ++last) {
      auto first = last;
      while (first != sorted.begin() && adjoin(dimensions[first[-1]], dimensions[*first], tensor)) --first;
      add({first, last + 1});
      add({*last});
    }
  }
  return options;
}

/// Completes a plan whose sides are chosen.
void complete(GemmPlan& plan, Operand order, Index max_count, bool batched) {
  for (std::size_t d = 0; d < plan.dimensions.size(); ++d) {
    const bool in_matrix = std::any_of(plan.groups.begin(), plan.groups.begin() + Around, [d](const auto& group) {
      return std::find(group.begin(), group.end(), d) != group.end();
    });
    if (!in_matrix) plan.groups[Around].push_back(d);
    if (in_matrix || batched) plan.dimensions[d].tile = plan.dimensions[d].extent;
  }
  plan.groups[Around] = sorted_by_stride(plan.dimensions, plan.groups[Around], order);
  if (batched && !is_one_batch(plan)) return;
  for (const Operand tensor : {A, B, C}) plan.copied[tensor] = !in_place(plan, tensor, batched);
  if (!batched) cut_tiles(plan, max_count);
  plan.cost = cost_of(plan, batched);
}

/// The dimensions in the order of loops: by the strides of the largest tensor, so that it is read once, in order; sums
/// last, so that one in a buffer is completed before the next one.
Dimensions ordered(Dimensions dimensions) {
  std::array<double, 3> elements{1, 1, 1};
  for (const Dimension& dimension : dimensions)
    for (const Operand tensor : {A, B, C})
      if (dimension.in(tensor)) elements[tensor] *= static_cast<double>(dimension.extent);
  const auto largest = static_cast<std::size_t>(std::max_element(elements.begin(), elements.end()) - elements.begin());
  std::stable_sort(dimensions.begin(), dimensions.end(), [largest](const Dimension& x, const Dimension& y) {
    const bool x_is_sum = x.holders == holders_of[Sums], y_is_sum = y.holders == holders_of[Sums];
    return x_is_sum != y_is_sum ? y_is_sum : x.strides[largest] > y.strides[largest];
  });
  return dimensions;
}

}  // namespace

GemmPlan choose_gemm_plan(const Dimensions& unordered, Index element_bytes, bool batched) {
  const Dimensions dimensions = ordered(unordered);
  GemmPlan best;
  const auto rows = side_options(dimensions, Rows), columns = side_options(dimensions, Columns),
             sums = side_options(dimensions, Sums);
  for (const auto& r : rows)
    for (const auto& c : columns)
      for (const auto& s : sums)
        for (const Operand order : {C, A, B}) {
          GemmPlan plan{dimensions, {r, c, s, {}}};
          complete(plan, order, max_copied_bytes / element_bytes, batched);
          if (plan.cost < best.cost) best = std::move(plan);
          if (!batched) break;  // the loops need no order yet
        }
  for (const Operand tensor : {A, B, C}) {
    best.buffer_at[tensor] = best.scratch_count;
    if (best.copied[tensor]) best.scratch_count += aligned_count(best.size(tensor), element_bytes);
  }
  return best;
}

}  // namespace dace_redist
