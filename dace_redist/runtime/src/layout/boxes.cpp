// SPDX-License-Identifier: BSD-3-Clause
#include "layout/boxes.hpp"

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

namespace dace_redist {

BoxTree::BoxTree(const Index* numbers, Index count, std::size_t ndim)
    : numbers_(numbers), ndim_(ndim), width_(2 * std::max<std::size_t>(ndim, 1)), order_(along_curve(numbers, count)) {
  constexpr Index highest = std::numeric_limits<Index>::max();
  std::size_t below = order_.size();
  do {
    const std::size_t nodes = below / fanout + (below % fanout != 0);
    std::vector<Index> bounds(nodes * width_);
    for (std::size_t node = 0; node < nodes; ++node) {
      Index *const lo = bounds.data() + node * width_, *const hi = lo + ndim;
      std::fill(lo, hi, highest);
      for (std::size_t child = node * fanout; child < std::min(below, (node + 1) * fanout); ++child)
        for (std::size_t axis = 0; axis < ndim; ++axis) {
          const Index* const box = levels_.empty()
                                       ? numbers + static_cast<std::size_t>(order_[child]) * (2 * ndim + 1) + 1
                                       : levels_.back().data() + child * width_;
          const Index end = box[ndim + axis] + (levels_.empty() ? box[axis] : 0);
          lo[axis] = std::min(lo[axis], box[axis]);
          hi[axis] = std::max(hi[axis], end);
        }
    }
    levels_.push_back(std::move(bounds));
    below = nodes;
  } while (below > 1);
}

std::vector<Index> BoxTree::along_curve(const Index* numbers, Index count) const {
  constexpr std::size_t key_bits = 60, max_axis_bits = 20;
  const std::size_t bits = std::min(max_axis_bits, key_bits / std::max<std::size_t>(ndim_, 1));
  const auto centre = [&](Index box, std::size_t axis) {
    const Index* const at = numbers + static_cast<std::size_t>(box) * (2 * ndim_ + 1) + 1;
    return static_cast<double>(at[axis]) + static_cast<double>(at[ndim_ + axis]) / 2;
  };
  std::array<double, max_dims> origin{}, cells{};
  for (std::size_t axis = 0; axis < ndim_ && count > 0; ++axis) {
    double lowest = centre(0, axis), highest = lowest;
    for (Index box = 1; box < count; ++box) {
      lowest = std::min(lowest, centre(box, axis));
      highest = std::max(highest, centre(box, axis));
    }
    origin[axis] = lowest;
    cells[axis] = highest > lowest ? static_cast<double>((1u << bits) - 1) / (highest - lowest) : 0;
  }
  std::vector<std::pair<std::uint64_t, Index>> keys(static_cast<std::size_t>(count));
  for (Index box = 0; box < count; ++box) {
    std::array<std::uint64_t, max_dims> cell{};
    for (std::size_t axis = 0; axis < ndim_; ++axis)
      cell[axis] = static_cast<std::uint64_t>((centre(box, axis) - origin[axis]) * cells[axis]);
    std::uint64_t key = 0;
    for (std::size_t bit = bits; bit-- > 0;)
      for (std::size_t axis = 0; axis < ndim_; ++axis) key = key << 1 | (cell[axis] >> bit & 1);
    keys[static_cast<std::size_t>(box)] = {key, box};
  }
  std::sort(keys.begin(), keys.end());
  std::vector<Index> order;
  order.reserve(keys.size());
  for (const auto& [key, box] : keys) order.push_back(box);
  return order;
}

void BoxTree::find_in(std::size_t level, std::size_t node, const IndexBox& box, std::vector<Index>& found) const {
  const std::size_t below = level > 0 ? levels_[level - 1].size() / width_ : order_.size();
  const std::size_t end = std::min((node + 1) * fanout, below);
  for (std::size_t child = node * fanout; child < end; ++child) {
    const Index* const lo = level > 0 ? levels_[level - 1].data() + child * width_
                                      : numbers_ + static_cast<std::size_t>(order_[child]) * (2 * ndim_ + 1) + 1;
    bool overlaps = true;
    for (std::size_t axis = 0; axis < ndim_ && overlaps; ++axis) {
      const Index hi = lo[ndim_ + axis] + (level > 0 ? 0 : lo[axis]);
      overlaps = std::max(lo[axis], box.lo[axis]) < std::min(hi, box.hi[axis]);
    }
    if (!overlaps) continue;
    if (level > 0)
      find_in(level - 1, child, box, found);
    else
      found.push_back(order_[child]);
  }
}

std::vector<Index> Boxes::overlapping(const IndexBox& box) const {
  std::call_once(shared_->once, [&] { shared_->tree = std::make_unique<const BoxTree>(numbers_, count_, ndim_); });
  std::vector<Index> found;
  shared_->tree->find(box, found);
  return found;
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
  struct Candidate {
    bool elsewhere, partial;
    Index turn, number;
  };
  const auto before = [](const Candidate& a, const Candidate& b) {
    return std::tie(a.elsewhere, a.partial, a.turn, a.number) < std::tie(b.elsewhere, b.partial, b.turn, b.number);
  };
  const auto compare = [&](Index a, Index b) {  // by their indices
    const auto past = std::mismatch(at(a) + 1, at(a) + 1 + 2 * ndim_, at(b) + 1);
    return past.first == at(a) + 1 + 2 * ndim_ ? 0 : *past.first < *past.second ? -1 : 1;
  };
  std::sort(rivals.begin(), rivals.end(), [&](Index a, Index b) {
    const int order = compare(a, b);
    return order == 0 ? a < b : order < 0;
  });
  std::vector<Candidate> candidates;
  Candidate own{};
  for (std::size_t begin = 0, end = 0; begin < rivals.size(); begin = end) {
    while (end < rivals.size() && compare(rivals[begin], rivals[end]) == 0) ++end;
    const auto equals = static_cast<Index>(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const Index turn = (static_cast<Index>(i - begin) - receiver % equals + equals) % equals;
      const bool partial = !contains(rivals[i], wanted);
      candidates.push_back({owner(rivals[i]) != receiver, partial, turn, rivals[i]});
      if (rivals[i] == box) own = candidates.back();
    }
  }
  std::sort(candidates.begin(), candidates.end(), before);
  rivals.clear();
  for (const Candidate& candidate : candidates)
    if (before(candidate, own)) rivals.push_back(candidate.number);
  return rivals;
}

/// Cuts the indices of a box out of `parts`.
void Boxes::subtract(std::vector<IndexBox>& parts, Index box) const {
  std::vector<IndexBox> left;
  for (IndexBox part : parts) {
    bool apart = false;
    for (std::size_t axis = 0; axis < ndim_; ++axis) {
      const Intervals cut = intervals(box, axis);
      apart = apart || std::max(cut.start, part.lo[axis]) >= std::min(cut.end, part.hi[axis]);
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
