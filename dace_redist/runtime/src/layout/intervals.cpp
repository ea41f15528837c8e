// SPDX-License-Identifier: BSD-3-Clause
#include "layout/intervals.hpp"

#include <cstddef>
#include <limits>
#include <numeric>

namespace dace_redist {

namespace {

/// The number of indices after which two interval sequences repeat together; the largest number if neither repeats. A
/// single interval does not end the other one's repetition.
Index joint_period(Index a_period, Index a_count, Index b_period, Index b_count) {
  constexpr Index never = std::numeric_limits<Index>::max();
  if (a_count < 2) return b_count < 2 ? never : b_period;
  if (b_count < 2) return a_period;
  const Index factor = a_period / std::gcd(a_period, b_period);
  return factor > never / b_period ? never : factor * b_period;
}

/// Appends a run, to the last piece if the run continues that piece's arithmetic progression.
/// \param begin  number of pieces that the run must not be joined to.
void append_run(std::vector<Piece>& pieces, std::size_t begin, Index length, Index source_offset, Index target_offset) {
  if (pieces.size() > begin && pieces.back().counts[2] == length) {
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
  Piece& piece = pieces.emplace_back();
  piece.source_offset = source_offset;
  piece.target_offset = target_offset;
  piece.counts[2] = length;
}

/// Appends the indices in [lo, hi) that both sides own, in ascending order.
void append_runs(std::vector<Piece>& pieces, const Intervals& source, const Intervals& target, Index lo, Index hi) {
  const std::size_t begin = pieces.size();
  for (Index global = lo; global < hi;) {
    const Index in_source = (global - source.start) % source.period,
                in_target = (global - target.start) % target.period;
    Index step = hi - global;
    if (in_source >= source.length) {
      step = std::min(step, source.period - in_source);
    } else if (in_target >= target.length) {
      step = std::min(step, target.period - in_target);
    } else {
      step = std::min({step, source.length - in_source, target.length - in_target});
      append_run(pieces, begin, step, source.local_index(global), target.local_index(global));
    }
    global += step;
  }
}

/// The first index in [from, until) at which an interval begins; `until` if none does.
Index next_begin(const Intervals& intervals, Index from, Index until) {
  const Index past = (from - intervals.start) % intervals.period, step = past == 0 ? 0 : intervals.period - past;
  return step < until - from ? from + step : until;
}

}  // namespace

std::vector<Index> overlapping_coordinates(const Intervals& mine, const AxisSplit& other, Index first, Index last) {
  if (mine.empty()) return {};
  const bool cyclic = other.block_count() > other.parts;  // else coordinates are found in ascending order
  const std::size_t max_found = static_cast<std::size_t>(std::min(other.parts, other.block_count()));
  std::vector<Index> found;
  std::vector<bool> seen(cyclic ? max_found : 0, false);
  const Index end = std::min(mine.end, last);
  Index k = std::max<Index>(0, (first - mine.start) / mine.period), stop = end;
  if (cyclic && mine.count > 1) {  // stop where both sides repeat
    const Index begin = mine.start + k * mine.period, cut_off = begin < first ? mine.period : 0;
    const Index period = joint_period(mine.period, mine.count, other.block * other.parts, 2);
    if (period < end - begin - cut_off) stop = begin + period + cut_off;
  }
  while (k < mine.count && found.size() < max_found) {
    const Index lo = mine.start + k++ * mine.period;
    if (lo >= stop) break;
    const Index from = std::max(lo, first), until = lo + std::min(mine.length, end - lo);
    if (from >= until) continue;
    const Index last_block = other.block_of(until - 1);
    for (Index j = other.block_of(from); j <= last_block && found.size() < max_found; ++j) {
      const Index coordinate = j % other.parts;
      if (cyclic ? seen[static_cast<std::size_t>(coordinate)] : !found.empty() && j <= found.back()) continue;
      found.push_back(coordinate);
      if (cyclic) seen[static_cast<std::size_t>(coordinate)] = true;
    }
    // past all further intervals that lie within this block
    if (!cyclic) k = std::max(k, (other.block_begin(last_block + 1) - mine.start - mine.length) / mine.period + 1);
  }
  if (cyclic) std::sort(found.begin(), found.end());
  return found;
}

void append_overlap(const Intervals& source, const Intervals& target, Index first, Index last,
                    std::vector<Piece>& pieces) {
  if (source.empty() || target.empty()) return;
  const Index lo = std::max({source.start, target.start, first}), hi = std::min({source.end, target.end, last});
  if (lo >= hi) return;
  const Index period = joint_period(source.period, source.count, target.period, target.count);
  const Index begin = next_begin(source.count > 1 ? source : target, lo, hi);  // repetitions begin with a whole run
  if (period > (hi - begin) / 2) return append_runs(pieces, source, target, lo, hi);
  const Index repetitions = (hi - begin) / period;
  append_runs(pieces, source, target, lo, begin);
  const std::size_t repeated = pieces.size();
  append_runs(pieces, source, target, begin, begin + period);
  for (std::size_t i = repeated; i < pieces.size(); ++i) {
    pieces[i].counts[0] = repetitions;
    pieces[i].source_strides[0] = source.count < 2 ? period : period / source.period * source.length;
    pieces[i].target_strides[0] = target.count < 2 ? period : period / target.period * target.length;
  }
  append_runs(pieces, source, target, begin + repetitions * period, hi);
}

}  // namespace dace_redist
