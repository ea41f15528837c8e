// SPDX-License-Identifier: BSD-3-Clause
#include "layout/index_map.hpp"

namespace dace_redist {

namespace {

std::vector<Index> shape_of(const Distribution& distribution) {
  std::vector<Index> shape;
  shape.reserve(distribution.axes().size());
  for (const AxisSplit& axis : distribution.axes()) shape.push_back(axis.extent);
  return shape;
}

}  // namespace

IndexMap::IndexMap(const std::vector<Index>& numbers, const Distribution& source, const Distribution& target)
    : ndim_(source.ndim()) {
  const std::vector<Index> from = shape_of(source), to = shape_of(target);
  const std::size_t ndim = from.size();
  if (to.size() != ndim || (numbers.empty() && from != to))
    throw Error(text("source and target need one global shape, got ", tuple_text(from), " and ", tuple_text(to)));
  if (!numbers.empty() && numbers.size() != ndim && numbers.size() != 4 * ndim)
    throw Error(text("axes and region of ", ndim, " dimensions take ", ndim, " or ", 4 * ndim, " numbers, got ",
                     numbers.size()));
  read_axes(numbers);
  const bool whole = numbers.size() <= ndim;
  if (whole) check_shapes(from, to);
  for (std::size_t s = 0; s < ndim; ++s) {
    const std::size_t t = static_cast<std::size_t>(target_axes_[s]);
    const Index source_offset = whole ? 0 : numbers[ndim + s], target_offset = whole ? 0 : numbers[2 * ndim + t];
    const Index extent = whole ? from[s] : numbers[3 * ndim + s];
    if (extent < 0) throw Error(text("region: shape[", s, "] must be at least 0, got ", extent));
    check_inside("source", s, source_offset, extent, from[s]);
    check_inside("target", t, target_offset, extent, to[t]);
    windows_[s] = {source_offset, source_offset + extent, target_offset - source_offset};
  }
}

std::vector<Index> IndexMap::within_target() const {
  const std::size_t ndim = static_cast<std::size_t>(ndim_);
  std::vector<Index> numbers(4 * ndim);
  for (std::size_t t = 0; t < ndim; ++t) {
    const Window& moved = window(source_axes_[t]);
    numbers[t] = static_cast<Index>(t);
    numbers[ndim + t] = numbers[2 * ndim + t] = moved.lo + moved.shift;
    numbers[3 * ndim + t] = moved.hi - moved.lo;
  }
  return numbers;
}

void IndexMap::read_axes(const std::vector<Index>& numbers) {
  target_axes_.fill(-1);
  for (int t = 0; t < ndim_; ++t) {
    const Index axis = numbers.empty() ? t : numbers[static_cast<std::size_t>(t)];
    if (axis < 0 || axis >= ndim_ || target_axes_[static_cast<std::size_t>(axis)] >= 0)
      throw Error(text("axes must name each of the ", ndim_, " dimensions once, got ",
                       tuple_text(std::vector<Index>(numbers.begin(), numbers.begin() + ndim_))));
    source_axes_[static_cast<std::size_t>(t)] = static_cast<int>(axis);
    target_axes_[static_cast<std::size_t>(axis)] = t;
  }
}

void IndexMap::check_shapes(const std::vector<Index>& from, const std::vector<Index>& to) const {
  std::vector<Index> expected(from.size());
  for (std::size_t s = 0; s < from.size(); ++s) expected[static_cast<std::size_t>(target_axes_[s])] = from[s];
  if (to == expected) return;
  const std::vector<int> axes(source_axes_.begin(), source_axes_.begin() + ndim_);
  throw Error(text("with axes ", tuple_text(axes), " a source of shape ", tuple_text(from), " needs a target of shape ",
                   tuple_text(expected), ", got ", tuple_text(to)));
}

void IndexMap::check_inside(const char* side, std::size_t axis, Index offset, Index extent, Index whole) {
  if (offset < 0 || offset > whole || extent > whole - offset)
    throw Error(text("region: ", extent, " indices from ", offset, " on are not inside dimension ", axis, " of the ",
                     side, ", which has ", whole));
}

}  // namespace dace_redist
