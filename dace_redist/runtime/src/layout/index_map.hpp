// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Which index of the target tensor each index of the source tensor becomes: sub-tensors and permuted axes.
/// Start reading at: IndexMap.

#include <cstddef>
#include <vector>

#include "core/export.hpp"
#include "layout/distribution.hpp"

namespace dace_redist {

/// A box of the source goes to a box of the target: shifted, and its axes in another order.
///
/// As plain numbers it is nothing at all, if every element keeps its index; or axes[ndim], the source axis of each
/// target axis, for the whole tensor; or axes[ndim], source_offset[ndim] in the source's axes, target_offset[ndim] in
/// the target's axes, and the box's shape[ndim] in the source's axes.
class DR_API IndexMap {
 public:
  /// The indices [lo, hi) of a source axis move; `shift` is added to them.
  struct Window {
    Index lo, hi, shift;
  };

  /// \throws Error if the numbers are no map between these tensors.
  IndexMap(const Encoding& encoding, const Distribution& source, const Distribution& target);

  /// The map that leaves in place what this one moves to the target, as plain numbers.
  Encoding within_target() const;

  int ndim() const { return static_cast<int>(source_axes_.size()); }
  /// The source axis that a target axis comes from.
  int source_axis(int target_axis) const { return source_axes_[static_cast<std::size_t>(target_axis)]; }
  /// The target axis that a source axis becomes.
  int target_axis(int source_axis) const { return target_axes_[static_cast<std::size_t>(source_axis)]; }
  /// Which indices of a source axis move, and how far.
  const Window& window(int source_axis) const { return windows_[static_cast<std::size_t>(source_axis)]; }

 private:
  static std::vector<Index> shape_of(const Distribution& distribution);
  void read_axes(const Encoding& encoding, std::size_t ndim);
  void read_whole(const std::vector<Index>& from, const std::vector<Index>& to);
  void read_region(const Encoding& encoding, const std::vector<Index>& from, const std::vector<Index>& to);
  static void check_inside(const char* side, std::size_t axis, Index offset, Index extent, Index whole);

  std::vector<int> source_axes_;  // [ndim] by target axis
  std::vector<int> target_axes_;  // [ndim] by source axis
  std::vector<Window> windows_;   // [ndim] by source axis
};

}  // namespace dace_redist
