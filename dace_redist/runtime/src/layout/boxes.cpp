// SPDX-License-Identifier: BSD-3-Clause
#include "layout/boxes.hpp"

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace dace_redist {

std::vector<Index> Boxes::along_curve() const {
  constexpr std::size_t key_bits = 32, max_axis_bits = 16;
  const std::size_t bits = std::min(max_axis_bits, key_bits / std::max<std::size_t>(ndim_, 1));
  const auto centre = [&](Index box, std::size_t axis) {
    return static_cast<double>(at(box)[1 + axis]) + static_cast<double>(at(box)[1 + ndim_ + axis]) / 2;
  };
  std::vector<std::uint64_t> keys;  // place on the curve, number of the box
  keys.reserve(static_cast<std::size_t>(count_));
  std::array<double, max_dims> lowest{}, highest{};
  for (std::size_t axis = 0; axis < ndim_ && count_ > 0; ++axis) {
    lowest[axis] = highest[axis] = centre(0, axis);
    for (Index box = 1; box < count_; ++box) {
      lowest[axis] = std::min(lowest[axis], centre(box, axis));
      highest[axis] = std::max(highest[axis], centre(box, axis));
    }
  }
  for (Index box = 0; box < count_; ++box) {
    std::array<std::uint64_t, max_dims> cell{};
    for (std::size_t axis = 0; axis < ndim_; ++axis)
      cell[axis] = static_cast<std::uint64_t>((centre(box, axis) - lowest[axis]) /
                                              std::max(highest[axis] - lowest[axis], 1.0) * ((1u << bits) - 1));
    std::uint64_t key = 0;
    for (std::size_t bit = bits; bit-- > 0;)
      for (std::size_t axis = 0; axis < ndim_; ++axis) key = key << 1 | (cell[axis] >> bit & 1);
    keys.push_back(key << 32 | static_cast<std::uint64_t>(box));
  }
  std::sort(keys.begin(), keys.end());
  std::vector<Index> order;
  order.reserve(keys.size());
  for (const std::uint64_t key : keys) order.push_back(static_cast<Index>(key & max_count));
  return order;
}

void Boxes::make_tree() const {
  Tree& tree = *tree_;
  tree.order = along_curve();
  std::size_t below = tree.order.size();
  do {
    const std::size_t nodes = (below + fanout - 1) / fanout;
    std::vector<Index> bounds(nodes * width());
    for (std::size_t child = 0; child < below; ++child)
      for (std::size_t axis = 0; axis < ndim_; ++axis) {
        const bool leaf = tree.levels.empty(), first = child % fanout == 0;
        const Index* const box = leaf ? at(tree.order[child]) + 1 : tree.levels.back().data() + child * width();
        Index& lo = bounds[child / fanout * width() + axis];
        Index& hi = bounds[child / fanout * width() + ndim_ + axis];
        const Index end = box[ndim_ + axis] + (leaf ? box[axis] : 0);
        lo = first ? box[axis] : std::min(lo, box[axis]);
        hi = first ? end : std::max(hi, end);
      }
    tree.levels.push_back(std::move(bounds));
    below = nodes;
  } while (below > 1);
}

void Boxes::find_in(std::size_t level, std::size_t node, const IndexBox& box, std::vector<Index>& found) const {
  const bool leaf = level == 0;
  const std::vector<Index>& nodes = tree_->levels[leaf ? 0 : level - 1];
  const std::size_t end = std::min((node + 1) * fanout, leaf ? tree_->order.size() : nodes.size() / width());
  for (std::size_t child = node * fanout; child < end; ++child) {
    const Index* const lo = leaf ? at(tree_->order[child]) + 1 : nodes.data() + child * width();
    bool overlaps = true;
    for (std::size_t axis = 0; axis < ndim_ && overlaps; ++axis) {
      const Index hi = lo[ndim_ + axis] + (leaf ? lo[axis] : 0);
      overlaps = std::max(lo[axis], box.lo[axis]) < std::min(hi, box.hi[axis]);
    }
    if (overlaps && leaf) found.push_back(tree_->order[child]);
    if (overlaps && !leaf) find_in(level - 1, child, box, found);
  }
}

std::vector<Index> Boxes::overlapping(const IndexBox& box) const {
  std::call_once(tree_->made, [&] { make_tree(); });
  std::vector<Index> found;
  find_in(tree_->levels.size() - 1, 0, box, found);
  return found;
}

bool Boxes::overlap() const {
  for (Index box = 0; box < count_; ++box) {
    IndexBox whole;
    for (std::size_t axis = 0; axis < ndim_; ++axis) {
      const Intervals own = intervals(box, axis);
      whole.lo[axis] = own.start;
      whole.hi[axis] = own.end;
    }
    if (overlapping(whole).size() > 1) return true;
  }
  return false;
}

bool Boxes::contains(Index box, const IndexBox& other) const {
  for (std::size_t axis = 0; axis < ndim_; ++axis) {
    const Intervals own = intervals(box, axis);
    if (own.start > other.lo[axis] || own.end < other.hi[axis]) return false;
  }
  return true;
}

/// The rivals of a box that are to send instead of it, the most preferred one first.
std::vector<Index> Boxes::preferred(Index box, const IndexBox& wanted, Index receiver,
                                    std::vector<Index> rivals) const {
  const auto indices = [&](Index one) { return std::vector<Index>(at(one) + 1, at(one) + 1 + 2 * ndim_); };
  std::map<std::vector<Index>, std::vector<Index>> equals;
  std::sort(rivals.begin(), rivals.end());
  for (const Index rival : rivals) equals[indices(rival)].push_back(rival);
  std::vector<std::tuple<bool, bool, Index, Index>> keys;  // elsewhere, incomplete, turn, number
  for (const auto& [_, boxes] : equals)
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      const auto count = static_cast<Index>(boxes.size());
      const Index turn = (static_cast<Index>(i) - receiver % count + count) % count;
      keys.emplace_back(owner(boxes[i]) != receiver, !contains(boxes[i], wanted), turn, boxes[i]);
    }
  std::sort(keys.begin(), keys.end());
  rivals.clear();
  for (const auto& key : keys) {
    if (std::get<3>(key) == box) break;
    rivals.push_back(std::get<3>(key));
  }
  return rivals;
}

void Boxes::subtract(std::vector<IndexBox>& parts, Index box) const {
  std::vector<IndexBox> left;
  for (IndexBox part : parts) {
    bool apart = false;
    for (std::size_t axis = 0; axis < ndim_; ++axis) {
      const Intervals cut = intervals(box, axis);
      apart |= std::max(cut.start, part.lo[axis]) >= std::min(cut.end, part.hi[axis]);
    }
    for (std::size_t axis = 0; axis < ndim_ && !apart; ++axis) {
      const Intervals cut = intervals(box, axis);
      if (part.lo[axis] < cut.start) {
        left.push_back(part);
        left.back().hi[axis] = part.lo[axis] = cut.start;
      }
      if (part.hi[axis] > cut.end) {
        left.push_back(part);
        left.back().lo[axis] = part.hi[axis] = cut.end;
      }
    }
    if (apart) left.push_back(part);
  }
  parts = std::move(left);
}

std::vector<IndexBox> Boxes::parts_sent(Index box, const IndexBox& wanted, Index receiver) const {
  IndexBox shared;
  for (std::size_t axis = 0; axis < ndim_; ++axis) {
    const Intervals own = intervals(box, axis);
    shared.lo[axis] = std::max(wanted.lo[axis], own.start);
    shared.hi[axis] = std::min(wanted.hi[axis], own.end);
  }
  std::vector<Index> rivals = overlapping(shared);
  std::vector<IndexBox> parts{shared};
  if (rivals.size() < 2) return rivals.empty() ? std::vector<IndexBox>{} : parts;
  for (const Index rival : preferred(box, wanted, receiver, std::move(rivals))) {
    if (parts.empty()) break;
    subtract(parts, rival);
  }
  return parts;
}

bool Boxes::find_hole(const IndexBox& within, const std::array<Intervals, max_dims>& needed, AxisArray& hole) const {
  std::vector<IndexBox> open{within};
  while (!open.empty()) {
    IndexBox box = open.back();
    open.pop_back();
    bool empty = false;
    for (std::size_t axis = 0; axis < ndim_; ++axis) {  // begins with a needed index along each axis
      box.lo[axis] = needed[axis].next(box.lo[axis]);
      empty = empty || box.lo[axis] >= std::min(box.hi[axis], needed[axis].end);
    }
    if (empty) continue;
    const std::vector<Index> found = overlapping(box);
    if (found.empty()) {
      hole = box.lo;
      return true;
    }
    if (std::any_of(found.begin(), found.end(), [&](Index one) { return contains(one, box); })) continue;
    std::vector<IndexBox> around{box};
    subtract(around, found[found.size() / 2]);
    open.insert(open.end(), around.rbegin(), around.rend());
  }
  return false;
}

}  // namespace dace_redist
