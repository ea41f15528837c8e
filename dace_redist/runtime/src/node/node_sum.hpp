// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Adds what ranks of one node hold in node-shared memory.

#include <algorithm>
#include <array>
#include <vector>

#include "copy/packing.hpp"
#include "node/sum_rendezvous.hpp"

namespace dace_redist {

/// target[i] = sum of sources[s][i], in the order of the sources, which all have the strides of `block`.
/// \param block    where the elements lie in each source.
/// \param sources  starts of the arrays, at least one.
/// \param packed   [block.count()] the sums, without gaps; overlaps no source.
template <class T>
void add_blocks(const StridedBlock& block, const std::vector<const char*>& sources, char* packed) {
  constexpr Index chunk = 1024;  // elements: stays in the nearest cache while all sources are added
  const StridedBlock walk = merged(to_packed(block, 0));
  const auto last = static_cast<std::size_t>(std::max(walk.ndim, 1) - 1);
  const Index length = walk.ndim == 0 ? 1 : walk.counts[last], stride = walk.ndim == 0 ? 1 : walk.source_strides[last];
  if (walk.count() == 0) return;
  T* target = reinterpret_cast<T*>(packed);
  std::array<Index, max_block_dims> at{};
  for (Index offset = walk.source_offset;;) {
    for (Index start = 0; start < length; start += chunk) {
      const Index count = std::min(chunk, length - start);
      const Index from = offset + start * stride;
      T* __restrict__ const sums = target + start;
      const T* __restrict__ const first = reinterpret_cast<const T*>(sources[0]) + from;
      for (Index i = 0; i < count; ++i) sums[i] = first[i * stride];
      for (std::size_t s = 1; s < sources.size(); ++s) {
        const T* __restrict__ const next = reinterpret_cast<const T*>(sources[s]) + from;
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

/// add_blocks() of some type.
using AddBlocks = void(const StridedBlock& block, const std::vector<const char*>& sources, char* packed);

/// Sums over the ranks of a communicator that share a node: each rank reads what the others hold and writes its own
/// part of the sums. Summands must not change while others read them: the ranks leave a sum together.
class NodeSum {
 public:
  /// Allocates what this rank shares with the others. \throws Error if there is too little shared memory.
  void allocate() { rendezvous_.allocate(); }
  SegmentEndpoint endpoint() const { return rendezvous_.endpoint(); }

  /// Maps what the others share, see SumRendezvous::connect(). \throws Error if it cannot be mapped.
  void connect(const std::vector<SegmentEndpoint>& members, int rank) {
    arrays_ = std::vector<PartnerArrays>(members.size());
    rendezvous_.connect(members, rank);
  }

  bool connected() const { return rendezvous_.connected(); }
  void disconnect() { rendezvous_.disconnect(); }

  /// Adds a block of all ranks' arrays, unless an array is not shared or they differ in strides. Collective.
  /// \param block   where the elements of this rank's part of the sums lie in each array.
  /// \param layout  of this rank's array.
  /// \param adds    what adds elements of their type.
  /// \param source  this rank's array.
  /// \param target  [block.count()] this rank's part of the sums.
  /// \return whether it was done, the same on all ranks.
  bool add(const StridedBlock& block, const LocalLayout& layout, AddBlocks* adds, const char* source, char* target) {
    rendezvous_.enter(finder_.find(source), PlainStrides(layout));
    const bool possible = alike() && (names() == mapped_ || map_all());
    if (possible && block.count() > 0) adds(block, summands(source), target);
    rendezvous_.finish();
    if (possible) rendezvous_.wait_until_finished();
    return possible;
  }

 private:
  /// Whether all arrays are shared and have one layout.
  bool alike() const {
    const LocalLayout common = rendezvous_.member(0).strides.layout();
    for (std::size_t m = 0; m < rendezvous_.size(); ++m) {
      const SumMember& member = rendezvous_.member(m);
      if (!member.summand.shared || !(member.strides == common)) return false;
    }
    return true;
  }

  std::vector<ArrayName> names() const {
    std::vector<ArrayName> found;
    for (std::size_t m = 0; m < rendezvous_.size(); ++m) found.push_back(rendezvous_.member(m).summand.name);
    return found;
  }

  /// Maps the arrays of the others; false on all ranks if one of them cannot.
  bool map_all() {
    bool mapped = true;
    for (std::size_t m = 0; m < rendezvous_.size(); ++m)
      mapped = mapped && (m == rendezvous_.rank() || arrays_[m].segment(rendezvous_.member(m).summand.name));
    mapped = rendezvous_.all_mapped(mapped);
    mapped_ = mapped ? names() : std::vector<ArrayName>();
    return mapped;
  }

  /// Where the ranks' arrays lie in this process.
  std::vector<const char*> summands(const char* own) {
    std::vector<const char*> found;
    for (std::size_t m = 0; m < rendezvous_.size(); ++m) {
      const SharedArrayFinder::ArrayLocation& theirs = rendezvous_.member(m).summand;
      const bool mine = m == rendezvous_.rank();
      found.push_back(mine ? own : arrays_[m].segment(theirs.name) + theirs.offset);
    }
    return found;
  }

  SumRendezvous rendezvous_;
  SharedArrayFinder finder_{rendezvous_.scratch()};
  std::vector<PartnerArrays> arrays_;
  std::vector<ArrayName> mapped_;  // [ranks] of the last sum, known to be mapped by all
};

}  // namespace dace_redist
