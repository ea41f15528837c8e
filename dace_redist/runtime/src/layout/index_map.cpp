// SPDX-License-Identifier: BSD-3-Clause
#include "layout/index_map.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace dace_redist {

namespace {

std::vector<Index> shape_of(const Distribution& distribution) {
  std::vector<Index> shape;
  shape.reserve(distribution.axes().size());
  for (const AxisSplit& axis : distribution.axes()) shape.push_back(axis.extent);
  return shape;
}

Index product(const std::vector<Index>& shape) {
  return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<Index>());
}

template <class Axis>
std::string permutation_text(const Axis* numbers, std::size_t ndim) {
  std::vector<Index> axes(numbers, numbers + ndim);
  for (Index& axis : axes) axis = counted_axis(axis, static_cast<Index>(ndim));
  return axes_text(std::move(axes));
}

/// A permutation and its inverse.
struct Permutation {
  Permutation() {
    std::iota(axes.begin(), axes.end(), 0);
    inverse = axes;
  }
  Permutation(const Index* numbers, std::size_t ndim) {
    inverse.fill(-1);
    for (std::size_t t = 0; t < ndim; ++t) {
      const Index axis = numbers[t];
      if (axis < 0 || axis >= static_cast<Index>(ndim) || inverse[static_cast<std::size_t>(axis)] >= 0)
        throw Error(
            text("axes must name each of the ", ndim, " dimensions once, got ", permutation_text(numbers, ndim)));
      axes[t] = static_cast<int>(axis);
      inverse[static_cast<std::size_t>(axis)] = static_cast<int>(t);
    }
  }

  std::array<int, max_dims> axes{};     // [ndim] source axis by target axis
  std::array<int, max_dims> inverse{};  // [ndim] target axis by source axis
};

/// \throws Error unless the whole tensor moves from one shape to the other.
void check_shapes(const Permutation& permutation, const std::vector<Index>& from, const std::vector<Index>& to) {
  std::vector<Index> expected(from.size());
  for (std::size_t s = 0; s < from.size(); ++s) expected[static_cast<std::size_t>(permutation.inverse[s])] = from[s];
  if (to == expected) return;
  throw Error(text("with axes ", permutation_text(permutation.axes.data(), from.size()), " a source of shape ",
                   axes_text(from), " needs a target of shape ", axes_text(expected), ", got ", axes_text(to)));
}

}  // namespace

IndexMap::IndexMap(const std::vector<Index>& numbers, const Distribution& source, const Distribution& target) {
  const bool reshapes = !numbers.empty() && numbers[0] < 0;
  if (reshapes && (source.boxed() || target.boxed() || target.has_margins()))
    throw Error(text("reshape: ", target.has_margins() ? "margins of the target" : "boxes",
                     " cannot be reshaped; redistribute to blocks or tiles without halo first"));
  reshapes ? read_reshape(numbers, shape_of(source), shape_of(target))
           : read_box(numbers, shape_of(source), shape_of(target));
}

void IndexMap::read_box(const std::vector<Index>& numbers, const Shape& from, const Shape& to) {
  const std::size_t ndim = from.size();
  if (to.size() != ndim || (numbers.empty() && from != to))
    throw Error(text("source and target need one global shape, got ", axes_text(from), " and ", axes_text(to),
                     "; axes, region or reshape relate others"));
  if (!numbers.empty() && numbers.size() != ndim && numbers.size() != 4 * ndim)
    throw Error(text("axes and region of ", ndim, " dimensions take ", ndim, " or ", 4 * ndim, " numbers, got ",
                     numbers.size()));
  const Permutation permutation = numbers.empty() ? Permutation() : Permutation(numbers.data(), ndim);
  const bool whole = numbers.size() <= ndim;
  if (whole) check_shapes(permutation, from, to);
  groups_.reserve(ndim);
  for (std::size_t s = 0; s < ndim; ++s) {
    const std::size_t t = static_cast<std::size_t>(permutation.inverse[s]);
    const Index source_offset = whole ? 0 : numbers[ndim + s], target_offset = whole ? 0 : numbers[2 * ndim + t];
    const Index extent = whole ? from[s] : numbers[3 * ndim + s];
    const auto number = [&](std::size_t axis) {
      return counted_axis(static_cast<Index>(axis), static_cast<Index>(ndim));
    };
    if (extent < 0) throw Error(text("region: ", entry("shape", number(s)), " must be at least 0, got ", extent));
    check_inside("source", number(s), source_offset, extent, from[s]);
    check_inside("target", number(t), target_offset, extent, to[t]);
    windows_[s] = {source_offset, source_offset + extent, target_offset - source_offset};
    groups_.push_back({static_cast<int>(s), static_cast<int>(t)});
    target_order_[t] = static_cast<int>(s);
  }
}

void IndexMap::read_reshape(const std::vector<Index>& numbers, const Shape& from, const Shape& to) {
  const bool before = numbers[0] == reshape_before_axes;
  const std::size_t ndim = (before ? to : from).size();
  if (numbers.size() != ndim + 1)
    throw Error(text("axes of a reshape take ", ndim, " numbers, got ", numbers.size() - 1));
  if (product(from) != product(to))
    throw Error(text("reshape: a source of shape ", tuple_text(from), " has ", product(from),
                     " elements, but the target's shape ", tuple_text(to), " has ", product(to)));
  const Permutation permutation(numbers.data() + 1, ndim), identity;
  const std::array<int, max_dims> orders[] = {before ? identity.axes : permutation.axes,
                                              before ? permutation.inverse : identity.axes};
  const Shape* const shapes[] = {&from, &to};
  for (std::size_t s = 0; s < from.size(); ++s) windows_[s] = {0, from[s], 0};
  const bool empty = product(from) == 0;  // all axes are one group then
  std::array<std::size_t, 2> taken{};
  const auto left = [&](std::size_t side) { return taken[side] < shapes[side]->size(); };
  while (left(0) || left(1)) {
    AxisGroup& group = groups_.emplace_back();
    std::array<Index, 2> extents{1, 1};
    const auto take = [&](std::size_t side) {
      const int axis = orders[side][taken[side]++];
      extents[side] *= (*shapes[side])[static_cast<std::size_t>(axis)];
      group.axes[side].push_back(axis);
      (side == 0 ? group.source_axis : group.target_axis) = axis;
    };
    for (const std::size_t side : {0, 1})
      if (left(side)) take(side);
    while (left(0) && left(1) && (empty || extents[0] != extents[1])) take(extents[0] < extents[1] ? 0 : 1);
    for (const std::size_t side :
         {0, 1})  // the last group has all that are left: of one index each, or without elements
      while (left(side) && !left(1 - side)) take(side);
    if (group.axes[0].size() == 1 && group.axes[1].size() == 1) group.axes = {};
  }
  order_groups();
}

void IndexMap::order_groups() {
  std::sort(groups_.begin(), groups_.end(),
            [](const AxisGroup& a, const AxisGroup& b) { return a.source_axis < b.source_axis; });
  const auto end = target_order_.begin() + static_cast<std::ptrdiff_t>(groups_.size());
  std::iota(target_order_.begin(), end, 0);
  const auto target_axis = [&](int group) { return groups_[static_cast<std::size_t>(group)].target_axis; };
  std::sort(target_order_.begin(), end, [&](int a, int b) { return target_axis(a) < target_axis(b); });
}

std::vector<Index> IndexMap::within_target() const {
  const bool reshapes = std::any_of(groups_.begin(), groups_.end(), [](const AxisGroup& one) { return !one.plain(); });
  if (reshapes) return {};
  const std::size_t ndim = groups_.size();
  std::vector<Index> numbers(4 * ndim);
  for (const AxisGroup& group : groups_) {
    const std::size_t t = static_cast<std::size_t>(group.target_axis);
    const Window& moved = window(group.source_axis);
    numbers[t] = static_cast<Index>(t);
    numbers[ndim + t] = numbers[2 * ndim + t] = moved.lo + moved.shift;
    numbers[3 * ndim + t] = moved.hi - moved.lo;
  }
  return numbers;
}

void IndexMap::check_inside(const char* side, Index axis, Index offset, Index extent, Index whole) {
  if (offset < 0 || offset > whole || extent > whole - offset)
    throw Error(text("region: ", extent, " indices from ", counted(offset), " on are not inside dimension ", axis,
                     " of the ", side, ", which has ", whole));
}

}  // namespace dace_redist
