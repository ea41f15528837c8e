// SPDX-License-Identifier: BSD-3-Clause
#include "layout/group_overlap.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"

namespace dace_redist {

namespace {

constexpr Index never = std::numeric_limits<Index>::max();

/// The first flat index from `flat` on that is owned along axis number `at` and faster ones, all of which own
/// something. \param origin  begin of the indices of the axis that are looked at. \return `never` if there is none
/// among these.
Index next_owned(const GroupSide& side, std::size_t at, Index origin, Index flat) {
  const GroupAxis& axis = side[at];
  for (Index index = std::max((flat - origin) / axis.stride, axis.owned.start);; ++index) {
    const Index past = (index - axis.owned.start) % axis.owned.period;
    if (past >= axis.owned.length) index += axis.owned.period - past;
    if (index >= axis.owned.end) return never;
    const Index row = origin + index * axis.stride, from = std::max(flat, row);
    const Index found = at + 1 == side.size() ? from : next_owned(side, at + 1, row, from);
    if (found != never) return found;  // else in the next row, at the latest
  }
}

/// Where a walk is on one side: at an axis, or before the first one.
struct Position {
  const GroupSide& axes;
  int at = -1;
  bool within_owned = false;  // a range of flat indices is owned along the axis

  bool is_last() const { return at + 1 == static_cast<int>(axes.size()); }
  const GroupAxis& axis() const { return axes[static_cast<std::size_t>(std::max(at, 0))]; }
  /// The begin of the indices of the axis that a flat index is among.
  Index origin(Index flat) const { return flat - flat % (axis().stride * axis().split.extent); }
  Index local_index(Index flat) const { return axis().owned.local_index((flat - origin(flat)) / axis().stride); }
};

/// The flat indices after which a side repeats, and the local indices along its axis until then.
struct Repetition {
  Index flat, step;
};

/// A walk over the flat indices of a group. It enters the axes of both sides, and cuts ranges of flat indices where
/// they lie in another row or owned interval of these, the longest ones first. A range lies within one index of all
/// axes that were left, and between the first and the last owned index of the current axes.
///
/// For example, a vector of 12 becomes a matrix of 3 rows of 4; the source's cell owns [0, 8), the target's cell the
/// last two columns. enter() of both first axes leaves [0, 8). visit() takes the side of the longer rows, the target:
/// visit_rows() cuts [0, 4) and [4, 8), and repeat() makes of these one loop of two steps, 4 elements of the source and
/// one row of the target, around [0, 4). There enter() of the columns leaves [2, 4), which nothing cuts any more:
/// add_piece() notes 2 elements, from local index 2 of the source and column 0 of the target's cell on.
class Walk {
 public:
  Walk(const GroupSide& source, const GroupSide& target) : sides_{Position{source}, Position{target}} {}

  SharedElements find_shared() {
    const auto& [first, second] = sides_;
    const Index lo = std::max(first.axis().lo * first.axis().stride, second.axis().lo * second.axis().stride);
    const Index hi = std::min(first.axis().hi * first.axis().stride, second.axis().hi * second.axis().stride);
    if (lo < hi) enter(0, lo, hi);
    return {count_, {}, std::make_unique<SharedElements::Several>(std::move(shared_))};
  }

  /// The cells of the second side, whose owned indices are unknown, with elements that the first one owns.
  std::vector<std::vector<Index>> find_cells() {
    const GroupSide& own = sides_[0].axes;
    if (std::any_of(own.begin(), own.end(), [](const GroupAxis& axis) { return axis.owned.empty(); })) return {};
    cells_only_ = true;
    const Index lo = own[0].lo * own[0].stride, hi = own[0].hi * own[0].stride;
    if (lo < hi) enter(1, lo, hi);
    std::sort(cells_.begin(), cells_.end());
    cells_.erase(std::unique(cells_.begin(), cells_.end()), cells_.end());
    return std::move(cells_);
  }

 private:
  Repetition repetition(std::size_t side) const {
    const GroupAxis& axis = sides_[side].axis();
    if (sides_[side].within_owned || axis.owned.count < 2) return {axis.stride, 1};
    return {axis.owned.period * axis.stride, axis.owned.length};
  }

  /// Visits the indices of a range that a side owns along its next axis.
  void enter(std::size_t side, Index lo, Index hi) {
    Position& position = sides_[side];
    const Position before = position;
    const Index repeats = repetition(0).flat;
    ++position.at;
    const GroupAxis& axis = position.axis();
    const Index origin = position.origin(lo);
    if (side == 1 && cells_only_) {
      position.within_owned = true;
      visit_cells(origin, lo, hi, repeats);
    } else {
      position.within_owned = axis.owned.count < 2;
      lo = std::max(lo, origin + axis.lo * axis.stride);
      hi = std::min(hi, origin + axis.hi * axis.stride);
      if (lo < hi) visit(lo, hi);
    }
    position.at = before.at;
    position.within_owned = before.within_owned;
  }

  /// Visits the parts of a range that belong to one coordinate each along the second side's axis.
  /// \param repeats  flat indices after which the first side repeats.
  void visit_cells(Index origin, Index lo, Index hi, Index repeats) {
    const AxisSplit& split = sides_[1].axis().split;
    const Index stride = sides_[1].axis().stride;
    const GroupSide& own = sides_[0].axes;
    if (split.parts > 1 && split.block_count() > split.parts) {
      const Index period = common_multiple(split.block * split.parts * stride, repeats);
      if (hi - lo > period) hi = lo + period;
    }
    for (Index flat = next_owned(own, 0, 0, lo), end; flat < hi; flat = next_owned(own, 0, 0, end)) {
      const Index block = split.parts == 1 ? 0 : split.block_of((flat - origin) / stride);
      end = split.parts == 1 ? hi : std::min(hi, origin + split.block_begin(block + 1) * stride);
      add_steps(1);
      cell_.push_back(block % split.parts);
      sides_[1].is_last() ? cells_.push_back(cell_) : visit(flat, end);
      cell_.pop_back();
    }
  }

  /// Visits a range: cuts it along the side whose rows or periods are longer, until both sides are at their last axis.
  void visit(Index lo, Index hi) {
    for (std::size_t side = 0; side < 2; ++side)
      if (sides_[side].at < 0) return enter(side, lo, hi);
    const auto length = [&](std::size_t side) {
      return sides_[side].within_owned && sides_[side].is_last() ? 0 : repetition(side).flat;
    };
    const std::size_t side = length(1) > length(0) ? 1 : 0;
    if (length(side) == 0) return add_piece(lo, hi);
    sides_[side].within_owned ? visit_rows(side, lo, hi) : visit_intervals(side, lo, hi);
  }

  /// Visits the indices of a side's axis within a range one by one.
  void visit_rows(std::size_t side, Index lo, Index hi) {
    const Index row = sides_[side].axis().stride;
    repeat(lo, hi, round_up(lo, row), [&](Index begin, Index end) {
      add_steps((end - begin) / row);
      for (Index until; begin < end; begin = until) {
        until = std::min(end, begin - begin % row + row);
        GroupLoop& at_row = around_.emplace_back(GroupLoop{current_axes(), 1, {}, {}});
        if (!cells_only_) at_row.offsets[side] = sides_[side].local_index(begin);
        enter(side, begin, until);
        around_.pop_back();
      }
    });
  }

  /// Visits the owned intervals of a side's axis within a range.
  void visit_intervals(std::size_t side, Index lo, Index hi) {
    const GroupAxis& axis = sides_[side].axis();
    const Index first = sides_[side].origin(lo) + axis.owned.start * axis.stride;
    const Index period = axis.owned.period * axis.stride, length = axis.owned.length * axis.stride;
    const Index past_end = (hi - first) % period;
    if (past_end >= length && hi < never - period) hi += period - past_end;  // nothing is owned in between
    const Index past = (lo - first) % period, step = past == 0 ? 0 : period - past;
    repeat(lo, hi, step < hi - lo ? lo + step : hi, [&](Index begin, Index end) {
      add_steps((end - begin) / period);
      sides_[side].within_owned = true;
      for (Index left; begin < end; begin += std::min(left, end - begin)) {
        const Index within = (begin - first) % period;
        left = period - within;
        if (within < length) visit(begin, begin + std::min(end - begin, length - within));
      }
      sides_[side].within_owned = false;
    });
  }

  /// Calls `body` with a range, once for what repeats from `begin` on.
  template <class Body>
  void repeat(Index lo, Index hi, Index begin, const Body& body) {
    const Repetition source = repetition(0), target = repetition(1);
    const Index period = common_multiple(source.flat, target.flat);
    if (cells_only_) return body(lo, hi - lo > period ? lo + period : hi);
    const Index count = begin < hi ? (hi - begin) / period : 0;
    if (count < 2) return body(lo, hi);
    if (lo < begin) body(lo, begin);
    around_.push_back(
        {current_axes(), count, {}, {period / source.flat * source.step, period / target.flat * target.step}});
    body(begin, begin + period);
    around_.pop_back();
    if (begin + count * period < hi) body(begin + count * period, hi);
  }

  /// \throws Error if a loop would take hours, or memory that no machine has.
  void add_steps(Index steps) {
    constexpr Index max_steps = 1 << 23;
    if (steps > max_steps - steps_)
      throw Error(text("rows or blocks of ", repetition(0).flat, " elements of the source and of ", repetition(1).flat,
                       " of the target meet in more than ", max_steps, " pieces; choose lengths of which one divides ",
                       "the other, or reshape by way of a tensor of one dimension"));
    steps_ += steps;
  }

  std::array<int, 2> current_axes() const { return {sides_[0].axis().axis, sides_[1].axis().axis}; }

  void add_piece(Index lo, Index hi) {
    add_steps(1);
    const std::vector<GroupLoop>& loops = shared_.loops;
    shared_.pieces.push_back(
        {{sides_[0].local_index(lo), sides_[1].local_index(lo)}, hi - lo, loops.size(), around_.size()});
    shared_.loops.insert(loops.end(), around_.begin(), around_.end());
    Index count = hi - lo;
    for (const GroupLoop& loop : around_) count *= loop.count;
    count_ += count;
  }

  std::array<Position, 2> sides_;  // source, target
  Index steps_ = 0;                // of all loops
  bool cells_only_ = false;        // what the second side owns is unknown
  std::vector<Index> cell_{};      // coordinates along the axes that the second side has entered
  std::vector<std::vector<Index>> cells_{};
  std::vector<GroupLoop> around_{};  // loops around the current range
  SharedElements::Several shared_{};
  Index count_ = 0;  // elements shared
};

}  // namespace

GroupSide with_strides(GroupSide axes) {
  if (axes.empty()) axes.emplace_back();
  Index stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); stride *= axis++->split.extent) axis->stride = stride;
  return axes;
}

std::vector<std::vector<Index>> overlapping_cells(const GroupSide& own, const GroupSide& other) {
  return Walk(own, other).find_cells();
}

SharedElements shared_elements(const GroupSide& source, const GroupSide& target) {
  return Walk(source, target).find_shared();
}

SharedElements shared_indices(const std::array<int, 2>& axes, const Intervals& source, const Intervals& target,
                              Index first, Index last) {
  const Index lo = std::max({source.start, target.start, first}), hi = std::min({source.end, target.end, last});
  if (source.empty() || target.empty() || lo >= hi) return {};
  if (source.count < 2 && target.count < 2)  // nearly always
    return {hi - lo, {{lo - source.start, lo - target.start}, hi - lo}, nullptr};
  const auto side = [lo, hi](int axis, const Intervals& owned) {
    return GroupSide{{axis, {hi, 1, 1, false}, 1, owned, lo, hi}};
  };
  return shared_elements(side(axes[0], source), side(axes[1], target));
}

}  // namespace dace_redist
