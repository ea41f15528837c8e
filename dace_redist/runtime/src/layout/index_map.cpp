// SPDX-License-Identifier: BSD-3-Clause
#include "layout/index_map.hpp"

namespace dace_redist {

IndexMap::IndexMap(const Encoding& encoding, const Distribution& source, const Distribution& target) {
  const std::vector<Index> from = shape_of(source), to = shape_of(target);
  const std::size_t ndim = from.size();
  if (to.size() != ndim || (encoding.empty() && from != to))
    throw Error(text("source and target need one global shape, got ", tuple_text(from), " and ", tuple_text(to)));
  if (!encoding.empty() && encoding.size() != ndim && encoding.size() != 4 * ndim)
    throw Error(text("axes and region of ", ndim, " dimensions take ", ndim, " or ", 4 * ndim, " numbers, got ",
                     encoding.size()));
  read_axes(encoding, ndim);
  if (encoding.size() > ndim)
    read_region(encoding, from, to);
  else
    read_whole(from, to);
}

Encoding IndexMap::within_target() const {
  const std::size_t ndim = source_axes_.size();
  Encoding encoding(4 * ndim);
  for (std::size_t t = 0; t < ndim; ++t) {
    const Window& moved = windows_[static_cast<std::size_t>(source_axes_[t])];
    encoding[t] = static_cast<Index>(t);
    encoding[ndim + t] = encoding[2 * ndim + t] = moved.lo + moved.shift;
    encoding[3 * ndim + t] = moved.hi - moved.lo;
  }
  return encoding;
}

std::vector<Index> IndexMap::shape_of(const Distribution& distribution) {
  std::vector<Index> shape;
  for (const AxisSplit& axis : distribution.axes()) shape.push_back(axis.extent);
  return shape;
}

void IndexMap::read_axes(const Encoding& encoding, std::size_t ndim) {
  target_axes_.assign(ndim, -1);
  for (std::size_t t = 0; t < ndim; ++t) {
    const Index axis = encoding.empty() ? static_cast<Index>(t) : encoding[t];
    if (axis < 0 || axis >= static_cast<Index>(ndim) || target_axes_[static_cast<std::size_t>(axis)] >= 0)
      throw Error(text("axes must name each of the ", ndim, " dimensions once, got ",
                       tuple_text(Encoding(encoding.begin(), encoding.begin() + static_cast<std::ptrdiff_t>(ndim)))));
    source_axes_.push_back(static_cast<int>(axis));
    target_axes_[static_cast<std::size_t>(axis)] = static_cast<int>(t);
  }
}

void IndexMap::read_whole(const std::vector<Index>& from, const std::vector<Index>& to) {
  std::vector<Index> expected, axes;
  for (const int axis : source_axes_) {
    expected.push_back(from[static_cast<std::size_t>(axis)]);
    axes.push_back(axis);
  }
  if (to != expected)
    throw Error(text("with axes ", tuple_text(axes), " a source of shape ", tuple_text(from),
                     " needs a target of shape ", tuple_text(expected), ", got ", tuple_text(to)));
  for (const Index extent : from) windows_.push_back({0, extent, 0});
}

void IndexMap::read_region(const Encoding& encoding, const std::vector<Index>& from, const std::vector<Index>& to) {
  const std::size_t ndim = from.size();
  for (std::size_t s = 0; s < ndim; ++s) {
    const std::size_t t = static_cast<std::size_t>(target_axes_[s]);
    const Index source_offset = encoding[ndim + s], target_offset = encoding[2 * ndim + t];
    const Index extent = encoding[3 * ndim + s];
    if (extent < 0) throw Error(text("region: shape[", s, "] must be at least 0, got ", extent));
    check_inside("source", s, source_offset, extent, from[s]);
    check_inside("target", t, target_offset, extent, to[t]);
    windows_.push_back({source_offset, source_offset + extent, target_offset - source_offset});
  }
}

void IndexMap::check_inside(const char* side, std::size_t axis, Index offset, Index extent, Index whole) {
  if (offset < 0 || offset > whole || extent > whole - offset)
    throw Error(text("region: ", extent, " indices from ", offset, " on are not inside dimension ", axis, " of the ",
                     side, ", which has ", whole));
}

}  // namespace dace_redist
