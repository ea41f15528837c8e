// SPDX-License-Identifier: BSD-3-Clause
#include "layout/intervals.hpp"

#include <limits>
#include <numeric>

namespace dace_redist {

namespace {

/// After how many indices two interval sequences repeat together; the largest number if neither repeats. A single
/// interval does not end the other one's repetition.
Index joint_period(Index a_period, Index a_count, Index b_period, Index b_count) {
  constexpr Index never = std::numeric_limits<Index>::max();
  if (a_count < 2) return b_count < 2 ? never : b_period;
  if (b_count < 2) return a_period;
  const Index factor = a_period / std::gcd(a_period, b_period);
  return factor > never / b_period ? never : factor * b_period;
}

/// Appends a run to `pieces`, to the last piece if it continues that one's arithmetic progression.
void append_run(std::vector<Piece>& pieces, Index length, Index source_offset, Index target_offset) {
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
void walk(std::vector<Piece>& pieces, const Intervals& source, const Intervals& target, Index lo, Index hi) {
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
Index next_begin(const Intervals& intervals, Index global) {
  return intervals.start + ceil_div(std::max<Index>(0, global - intervals.start), intervals.period) * intervals.period;
}

}  // namespace

std::vector<Index> overlapping_coordinates(const Intervals& mine, const AxisSplit& other, Index first, Index last) {
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

std::vector<Piece> intersect(const Intervals& source, const Intervals& target, Index first, Index last) {
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
