// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Boxes of indices, any number of which may overlap: found by the box that they overlap, and cut so that each element
/// has one sender. Start reading at: Boxes.

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "layout/intervals.hpp"

namespace dace_redist {

/// The indices from `lo` up to, but without, `hi` along each axis.
struct IndexBox {
  AxisArray lo{}, hi{};  // [ndim]
};

/// A list of boxes with their owners, whose order is their order in local arrays.
class Boxes {
 public:
  static constexpr Index max_count = 0xFFFFFFFF;

  Boxes() = default;
  /// \param numbers  of each box its owner, offset[ndim], extent[ndim]; must outlive this object.
  Boxes(const Index* numbers, Index count, std::size_t ndim) : numbers_(numbers), count_(count), ndim_(ndim) {}

  Index count() const { return count_; }
  Index owner(Index box) const { return *at(box); }
  Index offset(Index box, std::size_t axis) const { return at(box)[1 + axis]; }
  Index extent(Index box, std::size_t axis) const { return at(box)[1 + ndim_ + axis]; }
  /// The box's indices along one axis.
  Intervals intervals(Index box, std::size_t axis) const {
    const Index lo = offset(box, axis), extent = this->extent(box, axis);
    return {lo, extent, std::max<Index>(extent, 1), extent > 0 ? 1 : 0, lo + extent};
  }
  /// The numbers of the boxes that share an index with `box`.
  std::vector<Index> overlapping(const IndexBox& box) const;
  /// Whether an element is in several boxes.
  bool overlap() const;
  /// The parts of `wanted` that a box's owner sends to `receiver`. Of boxes that overlap, one sends an element: one of
  /// the receiver itself, else one that holds all of `wanted`, else equal boxes by turns, else the first. Parts and
  /// their order depend on the arguments only, so that both ranks have them alike.
  std::vector<IndexBox> parts_sent(Index box, const IndexBox& wanted, Index receiver) const;
  /// Finds an element of `needed` intervals [ndim] in `within` that no box holds. \return false if there is none.
  bool find_hole(const IndexBox& within, const std::array<Intervals, max_dims>& needed, AxisArray& hole) const;

 private:
  /// An R-tree, packed along a Z-order curve through the centres of the boxes.
  struct Tree {
    std::once_flag made;                     // when first needed
    std::vector<Index> order;                // boxes along the curve
    std::vector<std::vector<Index>> levels;  // leaves first: lo[ndim], hi[ndim] of each node
  };
  static constexpr std::size_t fanout = 16;

  const Index* at(Index box) const { return numbers_ + static_cast<std::size_t>(box) * (2 * ndim_ + 1); }
  /// Numbers of a node of the tree.
  std::size_t width() const { return 2 * std::max<std::size_t>(ndim_, 1); }
  std::vector<Index> along_curve() const;
  void make_tree() const;
  void find_in(std::size_t level, std::size_t node, const IndexBox& box, std::vector<Index>& found) const;
  bool contains(Index box, const IndexBox& other) const;
  std::vector<Index> preferred(Index box, const IndexBox& wanted, Index receiver, std::vector<Index> rivals) const;
  void subtract(std::vector<IndexBox>& parts, Index box) const;

  const Index* numbers_ = nullptr;
  Index count_ = 0;
  std::size_t ndim_ = 0;
  std::unique_ptr<Tree> tree_ = std::make_unique<Tree>();
};

}  // namespace dace_redist
