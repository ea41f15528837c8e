// Adds what ranks of one node hold in node-shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "copy/packing.hpp"
#include "mpi/mpi.hpp"
#include "node/node_ring.hpp"

namespace dace_redist {

/// target[i] = sum of sources[s][i], in the order of the sources, which all have the strides of `block`.
/// \param block  where the elements lie in each source; the target is packed.
template <class T>
void add_blocks(const StridedBlock& block, const std::vector<const T*>& sources, T* target) {
  constexpr Index chunk = 1024;  // elements: stays in the nearest cache while all sources are added
  const StridedBlock walk = merged(to_packed(block, 0));
  const auto last = static_cast<std::size_t>(std::max(walk.ndim, 1) - 1);
  const Index length = walk.ndim == 0 ? 1 : walk.counts[last], stride = walk.ndim == 0 ? 1 : walk.source_strides[last];
  if (walk.count() == 0) return;
  std::array<Index, max_block_dims> at{};
  for (Index offset = walk.source_offset;;) {
    for (Index start = 0; start < length; start += chunk) {
      const Index count = std::min(chunk, length - start);
      const Index from = offset + start * stride;
      T* __restrict__ const sums = target + start;
      const T* __restrict__ const first = sources[0] + from;
      for (Index i = 0; i < count; ++i) sums[i] = first[i * stride];
      for (std::size_t s = 1; s < sources.size(); ++s) {
        const T* __restrict__ const next = sources[s] + from;
        if (stride == 1)
          for (Index i = 0; i < count; ++i) sums[i] += next[i];
        else
          for (Index i = 0; i < count; ++i) sums[i] += next[i * stride];
      }
    }
    target += length;
    std::size_t d = last;
    for (; d > 0; --d) {
      offset += walk.source_strides[d - 1];
      if (++at[d - 1] < walk.counts[d - 1]) break;
      offset -= walk.source_strides[d - 1] * walk.counts[d - 1];
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/// Sums over the ranks of a communicator that share a node: each rank reads what the others hold and writes its own
/// part of the sums.
///
/// Every rank has a board in shared memory, on which it says where its summands lie and how far it has come. Summands
/// must not change while others read them: the ranks leave a sum together.
class NodeSum {
 public:
  /// Allocates this rank's board. \throws Error if there is too little shared memory.
  void allocate() { own_.allocate(1, Ring::line_bytes, 1); }
  Introduction introduction() const { return own_.introduction(0, {}); }

  /// Maps the boards of all ranks, in their order. \throws Error if one cannot be mapped.
  void meet(const std::vector<Introduction>& members, int rank) {
    rank_ = static_cast<std::size_t>(rank);
    boards_.clear();
    segments_ = std::vector<SharedSegment>(members.size());
    arrays_ = std::vector<PartnerArrays>(members.size());
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (m != rank_ && !RingSegment::map(members[m], segments_[m]))
        throw Error(text("process ", members[m].segment.process, " is not member ", m,
                         " of its group: the ranks of this node do not see each other's processes"));
      boards_.push_back(m == rank_ ? own_.ring(0) : reinterpret_cast<Ring*>(segments_[m].at(members[m].ring_offset)));
    }
  }

  bool ready() const { return !boards_.empty(); }
  void clear() { boards_.clear(); }

  /// Adds `block` of all ranks' arrays, or finds that this takes another way: that an array is not shared, or that
  /// they differ in strides. Returns whether it was done, the same on all ranks. Collective.
  template <class T>
  bool add(const StridedBlock& block, const LocalLayout& layout, const T* source, T* target) {
    wait([this](const Ring& board) { return board.finished.load(std::memory_order_acquire) >= sums_; });
    ++sums_;
    Ring& mine = *boards_[rank_];
    mine.source = {finder_.find(source), PlainStrides(layout), 0, 0};
    mine.entered.store(sums_, std::memory_order_release);
    wait([this](const Ring& board) { return board.entered.load(std::memory_order_acquire) >= sums_; });
    const bool possible = alike() && (names() == mapped_ || map_all());
    if (possible && block.count() > 0) add_blocks(block, summands(source), target);
    mine.finished.store(sums_, std::memory_order_release);
    if (possible) wait([this](const Ring& board) { return board.finished.load(std::memory_order_acquire) >= sums_; });
    return possible;
  }

 private:
  /// Whether all arrays are shared and have one layout.
  bool alike() const {
    const LocalLayout common = boards_[0]->source.strides.layout();
    return std::all_of(boards_.begin(), boards_.end(), [&](const Ring* board) {
      return board->source.place.shared && board->source.strides == common;
    });
  }

  std::vector<ArrayName> names() const {
    std::vector<ArrayName> found;
    for (const Ring* board : boards_) found.push_back(board->source.place.name);
    return found;
  }

  /// Maps the arrays of the others; false on all ranks if one of them cannot.
  bool map_all() {
    Ring& mine = *boards_[rank_];
    bool mapped = true;
    for (std::size_t m = 0; m < boards_.size(); ++m)
      mapped = mapped && (m == rank_ || arrays_[m].segment(boards_[m]->source.place.name));
    if (!mapped) mine.refused.store(sums_, std::memory_order_relaxed);
    mine.written.store(sums_, std::memory_order_release);
    wait([this](const Ring& board) { return board.written.load(std::memory_order_acquire) >= sums_; });
    for (const Ring* board : boards_) mapped = mapped && board->refused.load(std::memory_order_relaxed) != sums_;
    mapped_ = mapped ? names() : std::vector<ArrayName>();
    return mapped;
  }

  /// Where the ranks' arrays lie in this process.
  template <class T>
  std::vector<const T*> summands(const T* own) {
    std::vector<const T*> found;
    for (std::size_t m = 0; m < boards_.size(); ++m) {
      const SharedArrayFinder::Place& place = boards_[m]->source.place;
      found.push_back(m == rank_ ? own : reinterpret_cast<const T*>(arrays_[m].segment(place.name) + place.offset));
    }
    return found;
  }

  template <class Condition>
  void wait(const Condition& holds) const {
    Backoff backoff(boards_.size());
    for (const Ring* board : boards_)
      while (!holds(*board)) backoff.wait();
  }

  RingSegment own_;
  SharedArrayFinder finder_{own_.scratch()};
  std::size_t rank_ = 0;
  std::vector<Ring*> boards_;  // [ranks]; none: not ready
  std::vector<SharedSegment> segments_;
  std::vector<PartnerArrays> arrays_;
  std::vector<ArrayName> mapped_;  // [ranks] of the last sum, known to be mapped by all
  std::uint64_t sums_ = 0;         // begun
};

}  // namespace dace_redist
