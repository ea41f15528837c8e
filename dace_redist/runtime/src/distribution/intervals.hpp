// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// One dimension: which global indices a coordinate owns, and what two coordinates have in common.
/// Start reading at: AxisSplit (who owns what along one dimension), then `intersect`.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace dace_redist {

using Index = std::int64_t;

/// a / b rounded up, for a >= 0 and b > 0; does not overflow.
inline constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0); }

/// The global indices one coordinate owns along one dimension: `count` intervals of `length` indices, `period` apart,
/// the last one cut off at `end`. Locally they lie one after another: global g = start + k * period + i (i < length)
/// has local index k * length + i.
struct Intervals {
  Index start = 0, length = 0, period = 1, count = 0, end = 0;

  bool empty() const { return count == 0; }
  Index local_index(Index global) const { return (global - start) / period * length + (global - start) % period; }
  /// Number of indices owned.
  Index size() const { return empty() ? 0 : local_index(end - 1) + 1; }
  /// The same intervals with `by` added to all global indices; local indices stay.
  Intervals shifted(Index by) const { return {start + by, length, period, count, end + by}; }
};

/// One dimension of `extent` indices, split over `parts` coordinates in blocks of `block` indices: block j belongs to
/// coordinate j mod parts. `balanced`: one block per coordinate, the first `extent mod parts` hold one index more.
/// `block` is at least 1 also where the extent is 0, of which no coordinate owns anything.
struct AxisSplit {
  Index extent = 0, parts = 1, block = 1;
  bool balanced = false;

  Index block_count() const { return balanced ? parts : ceil_div(extent, block); }
  Index block_begin(Index j) const {
    if (!balanced) return std::min(j * block, extent);
    return j * (extent / parts) + std::min(j, extent % parts);
  }
  /// The block that holds a global index.
  Index block_of(Index global) const {
    if (!balanced) return global / block;
    const Index quotient = extent / parts, longer = extent % parts, edge = longer * (quotient + 1);
    return global < edge ? global / (quotient + 1) : longer + (global - edge) / quotient;
  }
  Index owner(Index global) const { return block_of(global) % parts; }
  /// Elements per block where all blocks but the last are equally long, 0 of an extent of 0; -1 where they are not.
  Index uniform_block() const {
    if (parts == 1) return extent;
    if (!balanced) return std::min(block, extent);
    const Index longer = extent % parts;
    return longer == 0 || longer == parts - 1 || extent < parts ? ceil_div(extent, parts) : -1;
  }

  Intervals intervals(Index coordinate) const {
    const Index blocks = block_count(), begin = block_begin(coordinate), end = block_begin(coordinate + 1);
    if (coordinate >= blocks || begin >= end) return {};
    if (blocks <= parts) return {begin, end - begin, end - begin, 1, end};
    if (parts == 1) return {0, extent, extent, 1, extent};
    const Index count = (blocks - 1 - coordinate) / parts + 1, last = coordinate + (count - 1) * parts;
    return {begin, block, block * parts, count, block_begin(last + 1)};
  }
};

/// After how many indices two interval sequences repeat together; the largest number if neither repeats. A single
/// interval does not end the other one's repetition.
inline Index joint_period(Index a_period, Index a_count, Index b_period, Index b_count) {
  constexpr Index never = std::numeric_limits<Index>::max();
  if (a_count < 2) return b_count < 2 ? never : b_period;
  if (b_count < 2) return a_period;
  const Index factor = a_period / std::gcd(a_period, b_period);
  return factor > never / b_period ? never : factor * b_period;
}

/// The coordinates of `other` that own an index of `mine` in [first, last), ascending. Cost: the blocks met until all
/// coordinates are found or both sides repeat, and where each coordinate of `other` has one block, the coordinates
/// found.
inline std::vector<Index> overlapping_coordinates(const Intervals& mine, const AxisSplit& other, Index first,
                                                  Index last) {
  std::vector<Index> found;
  if (mine.empty()) return found;
  const bool single_blocks = other.block_count() <= other.parts;
  std::vector<bool> seen(static_cast<std::size_t>(std::min(other.parts, other.block_count())), false);
  const Index end = std::min(mine.end, last);
  Index k = std::max<Index>(0, (first - mine.start) / mine.period), stop = end;
  if (!single_blocks && mine.count > 1) {
    const Index begin = mine.start + k * mine.period, cut_off = begin < first ? mine.period : 0;
    const Index period = joint_period(mine.period, mine.count, other.block * other.parts, 2);
    if (period < end - begin - cut_off) stop = begin + period + cut_off;
  }
  for (Index lo = mine.start + k * mine.period; lo < stop && found.size() < seen.size();
       lo = mine.start + k * mine.period) {
    ++k;
    const Index from = std::max(lo, first), until = std::min(lo + mine.length, end);
    if (from >= until) continue;
    const Index last_block = other.block_of(until - 1);
    for (Index j = other.block_of(from); j <= last_block && found.size() < seen.size(); ++j) {
      const std::size_t coordinate = static_cast<std::size_t>(j % other.parts);
      if (!seen[coordinate]) found.push_back(j % other.parts);
      seen[coordinate] = true;
    }
    // past all further intervals that lie in this block whole
    if (single_blocks)
      k = std::max(k, (other.block_begin(last_block + 1) - mine.start - mine.length) / mine.period + 1);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Indices that two interval sequences share, as a nest of loops in local indices of both sides, outermost first:
/// [repetitions of the joint period][equal runs within it][the run, stride 1].
struct Piece {
  static constexpr int levels = 3;
  Index source_offset = 0, target_offset = 0;
  std::array<Index, levels> counts{1, 1, 1}, source_strides{0, 0, 1}, target_strides{0, 0, 1};
};

/// Appends a run to `pieces`, to the last piece if it continues that one's arithmetic progression.
inline void append_run(std::vector<Piece>& pieces, Index length, Index source_offset, Index target_offset) {
  if (!pieces.empty() && pieces.back().counts[2] == length) {
    Piece& last = pieces.back();
    const Index source_step = source_offset - last.source_offset, target_step = target_offset - last.target_offset;
    if (last.counts[1] == 1) {
      last.counts[1] = 2;
      last.source_strides[1] = source_step;
      last.target_strides[1] = target_step;
      return;
    }
    if (source_step == last.counts[1] * last.source_strides[1] &&
        target_step == last.counts[1] * last.target_strides[1]) {
      ++last.counts[1];
      return;
    }
  }
  Piece piece;
  piece.source_offset = source_offset;
  piece.target_offset = target_offset;
  piece.counts[2] = length;
  pieces.push_back(piece);
}

/// Appends what both sides own within the global indices [lo, hi), in ascending order.
inline void walk(std::vector<Piece>& pieces, const Intervals& source, const Intervals& target, Index lo, Index hi) {
  for (Index global = lo; global < hi;) {
    const Index in_source = (global - source.start) % source.period,
                in_target = (global - target.start) % target.period;
    if (in_source >= source.length) {
      global += source.period - in_source;
    } else if (in_target >= target.length) {
      global += target.period - in_target;
    } else {
      const Index length = std::min({source.length - in_source, target.length - in_target, hi - global});
      append_run(pieces, length, source.local_index(global), target.local_index(global));
      global += length;
    }
  }
}

/// The first global index, from `global` on, at which an interval begins.
inline Index next_begin(const Intervals& intervals, Index global) {
  return intervals.start + ceil_div(std::max<Index>(0, global - intervals.start), intervals.period) * intervals.period;
}

/// The indices in [first, last) that `source` and `target` have in common. Both sides of a message call this with the
/// same arguments, so that they agree on the order. Cost: the runs of one joint period and of the rest before and
/// after.
inline std::vector<Piece> intersect(const Intervals& source, const Intervals& target, Index first, Index last) {
  std::vector<Piece> pieces, middle, rest;
  if (source.empty() || target.empty()) return pieces;
  const Index lo = std::max({source.start, target.start, first}), hi = std::min({source.end, target.end, last});
  const Index period = joint_period(source.period, source.count, target.period, target.count);
  if (lo >= hi) return pieces;
  const Index begin = next_begin(source.count > 1 ? source : target, lo);  // so that no run is cut between repetitions
  if (begin >= hi || period > (hi - begin) / 2) {
    walk(pieces, source, target, lo, hi);
    return pieces;
  }
  const Index repetitions = (hi - begin) / period;
  walk(pieces, source, target, lo, begin);
  walk(middle, source, target, begin, begin + period);
  walk(rest, source, target, begin + repetitions * period, hi);
  for (Piece& piece : middle) {
    piece.counts[0] = repetitions;
    piece.source_strides[0] = source.count < 2 ? period : period / source.period * source.length;
    piece.target_strides[0] = target.count < 2 ? period : period / target.period * target.length;
  }
  pieces.insert(pieces.end(), middle.begin(), middle.end());
  pieces.insert(pieces.end(), rest.begin(), rest.end());
  return pieces;
}

}  // namespace dace_redist
