// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The map from indices of the source tensor to indices of the target tensor: sub-tensors, permuted axes, reshapes.
/// Start reading at: IndexMap.

#include <array>
#include <cstddef>
#include <vector>

#include "dace_redist_types.h"
#include "layout/distribution.hpp"

namespace dace_redist {

/// First of the plain numbers of a reshape: the tensor is permuted, then reshaped, or the other way round.
inline constexpr Index reshape_after_axes = -1, reshape_before_axes = -2;

/// Axes of the source that become axes of the target: one each or, of a reshape, the fewest neighbouring axes of equal
/// numbers of indices on both sides. Their indices are counted together in C order ("flat").
struct AxisGroup {
  int source_axis = 0, target_axis = 0;    // the fastest ones; 0 if a side has none
  std::array<std::vector<int>, 2> axes{};  // of source and target, slowest first; both empty: one each

  bool plain() const { return axes[0].empty() && axes[1].empty(); }
  int axis(std::size_t side) const { return side == 0 ? source_axis : target_axis; }
};

/// Moves a box of the source to a box of the target: shifted, and with its axes in another order; or all of the source,
/// reshaped in C order to the target's shape.
///
/// As plain numbers: empty if every element keeps its index; axes[ndim], the source axis of each target axis, for the
/// whole tensor; or axes[ndim], source_offset[ndim] in the source's axes, target_offset[ndim] in the target's axes, and
/// the box's shape[ndim] in the source's axes. Of a reshape: reshape_after_axes and axes[ndim of the source], or
/// reshape_before_axes and axes[ndim of the target].
class DR_API IndexMap {
 public:
  /// The indices [lo, hi) of a source axis move; `shift` is added to them.
  struct Window {
    Index lo, hi, shift;
  };

  /// \throws Error if the numbers are not a map between these tensors.
  IndexMap(const std::vector<Index>& numbers, const Distribution& source, const Distribution& target);

  /// The map that leaves the moved elements in place within the target, as plain numbers.
  std::vector<Index> within_target() const;

  /// The groups of axes, in the order of the source's axes.
  const std::vector<AxisGroup>& groups() const { return groups_; }
  /// The number of the group at a position in the order of the target's axes.
  int group_at_target(int position) const { return target_order_[static_cast<std::size_t>(position)]; }
  /// The moved indices of a source axis, and their shift.
  const Window& window(int source_axis) const { return windows_[static_cast<std::size_t>(source_axis)]; }

 private:
  using Shape = std::vector<Index>;

  void read_box(const std::vector<Index>& numbers, const Shape& from, const Shape& to);
  void read_reshape(const std::vector<Index>& numbers, const Shape& from, const Shape& to);
  void order_groups();
  static void check_inside(const char* side, Index axis, Index offset, Index extent, Index whole);

  std::vector<AxisGroup> groups_;
  std::array<int, max_dims> target_order_{};  // [groups]
  std::array<Window, max_dims> windows_{};    // [ndim] by source axis
};

}  // namespace dace_redist
