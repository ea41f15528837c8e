// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The map from indices of the source tensor to indices of the target tensor: sub-tensors and permuted axes.
/// Start reading at: IndexMap.

#include <array>
#include <cstddef>
#include <vector>

#include "core/export.hpp"
#include "layout/distribution.hpp"

namespace dace_redist {

/// Moves a box of the source to a box of the target: shifted, and with its axes in another order.
///
/// As plain numbers: empty if every element keeps its index; axes[ndim], the source axis of each target axis, for the
/// whole tensor; or axes[ndim], source_offset[ndim] in the source's axes, target_offset[ndim] in the target's axes, and
/// the box's shape[ndim] in the source's axes.
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

  int ndim() const { return ndim_; }
  /// The source axis that a target axis comes from.
  int source_axis(int target_axis) const { return source_axes_[static_cast<std::size_t>(target_axis)]; }
  /// The target axis that a source axis becomes.
  int target_axis(int source_axis) const { return target_axes_[static_cast<std::size_t>(source_axis)]; }
  /// The moved indices of a source axis, and their shift.
  const Window& window(int source_axis) const { return windows_[static_cast<std::size_t>(source_axis)]; }

 private:
  void read_axes(const std::vector<Index>& numbers);
  /// \throws Error unless the whole tensor moves from one shape to the other.
  void check_shapes(const std::vector<Index>& from, const std::vector<Index>& to) const;
  static void check_inside(const char* side, std::size_t axis, Index offset, Index extent, Index whole);

  int ndim_;
  std::array<int, max_dims> source_axes_{};  // [ndim] by target axis
  std::array<int, max_dims> target_axes_{};  // [ndim] by source axis
  std::array<Window, max_dims> windows_{};   // [ndim] by source axis
};

}  // namespace dace_redist
