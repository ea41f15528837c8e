// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Adds what ranks of one node hold in node-shared memory.

#include <vector>

#include "copy/packing.hpp"
#include "copy/reduce_blocks.hpp"
#include "copy/stream_threshold.hpp"
#include "node/sum_rendezvous.hpp"

namespace dace_redist {

/// Sums over the ranks of a communicator that share a node: each rank reads what the others hold and writes its own
/// part of the sums. Summands must not change while others read them: the ranks leave a sum together.
class NodeSum {
 public:
  /// Allocates what this rank shares with the others. \throws Error if there is too little shared memory.
  void allocate() { rendezvous_.allocate(); }
  SegmentEndpoint endpoint() const { return rendezvous_.endpoint(); }

  /// Maps what the others share, see SumRendezvous::connect(). \throws Error if it cannot be mapped.
  void connect(const std::vector<SegmentEndpoint>& members, int rank, MPI_Comm comm) {
    arrays_ = std::vector<PartnerArrays>(members.size());
    rendezvous_.connect(members, rank, comm);
  }

  bool connected() const { return rendezvous_.connected(); }
  void disconnect() { rendezvous_.disconnect(); }

  /// Adds a block of all ranks' arrays, unless an array is not shared or they differ in strides. Collective.
  /// \param block   where the elements of this rank's part of the sums lie in each array.
  /// \param layout  of this rank's array.
  /// \param steps   what adds elements of their type.
  /// \param source  this rank's array.
  /// \param target  [block.count()] this rank's part of the sums.
  /// \return whether it was done, the same on all ranks.
  bool add(const StridedBlock& block, const LocalLayout& layout, const ReductionSteps& steps, const char* source,
           char* target) {
    rendezvous_.enter(finder_.find(source), PlainStrides(layout));
    const bool possible = alike() && (names() == mapped_ || map_all());
    if (possible && block.count() > 0) {
      find_summands(block, steps, source);
      const Index nbytes = block.count() * steps.target_bytes();
      reduce_blocks(summands_, steps.target_bytes(), target, nbytes >= stream_threshold_bytes());
    }
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

  /// Takes note of where the block lies in the arrays of all ranks, as this process sees them.
  void find_summands(const StridedBlock& block, const ReductionSteps& steps, const char* own) {
    summands_.clear();
    for (std::size_t m = 0; m < rendezvous_.size(); ++m) {
      const SharedArrayFinder::ArrayLocation& theirs = rendezvous_.member(m).summand;
      PartialBlock& summand = summands_.emplace_back(steps.partial(static_cast<Index>(m), false));
      summand.block = to_packed(block, 0);
      summand.source = m == rendezvous_.rank() ? own : arrays_[m].segment(theirs.name) + theirs.offset;
    }
  }

  SumRendezvous rendezvous_;
  SharedArrayFinder finder_{rendezvous_.scratch()};
  std::vector<PartnerArrays> arrays_;
  std::vector<ArrayName> mapped_;       // [ranks] of the last sum, known to be mapped by all
  std::vector<PartialBlock> summands_;  // [ranks] of the sum at hand
};

}  // namespace dace_redist
