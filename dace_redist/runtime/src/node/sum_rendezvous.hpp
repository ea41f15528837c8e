// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How the ranks of a node that sum what they hold wait for each other, and where each says what it holds.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <vector>

#include "core/backoff.hpp"
#include "node/advertised_segment.hpp"
#include "node/message_state.hpp"

namespace dace_redist {

/// What one member says to all others, in shared memory. Each counter holds the number of the latest sum that is so
/// far.
struct SumMember {
  using Counter = std::atomic<std::uint64_t>;
  static constexpr std::int64_t line_bytes = detail::line_bytes;

  alignas(line_bytes) Counter entered;   ///< sum for which `summand` and `strides` hold
  alignas(line_bytes) Counter mapped;    ///< sum for which it has tried to map the others' summands
  alignas(line_bytes) Counter unmapped;  ///< sum for which it could not
  alignas(line_bytes) Counter finished;  ///< sum for which it reads nothing any more
  alignas(line_bytes) SharedArrayFinder::ArrayLocation summand;
  PlainStrides strides;
};

/// The members of a sum, which pass its steps together: all enter, map what is new to them, add, and leave.
class SumRendezvous {
 public:
  /// Allocates what this rank says to the others. \throws Error if there is too little shared memory.
  void allocate() {
    segment_.allocate(static_cast<std::int64_t>(sizeof(SumMember)));
    new (segment_.at(AdvertisedSegment::header_bytes)) SumMember{};
  }
  SegmentEndpoint endpoint() const { return segment_.endpoint(); }

  /// Maps what the others say.
  /// \param members  what endpoint() returned on each, in the order of the ranks.
  /// \param rank     this rank's number among them.
  /// \param comm     see Backoff.
  /// \throws Error if it cannot be mapped.
  void connect(const std::vector<SegmentEndpoint>& members, int rank, MPI_Comm comm) {
    rank_ = static_cast<std::size_t>(rank);
    comm_ = comm;
    members_.clear();
    partners_ = std::vector<SharedSegment>(members.size());
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (m != rank_ && !AdvertisedSegment::map(members[m], partners_[m]))
        throw Error(text("process ", members[m].segment.process, " is not member ", m,
                         " of its group: the ranks of this node do not see each other's processes"));
      char* const shared =
          m == rank_ ? segment_.at(AdvertisedSegment::header_bytes) : partners_[m].at(AdvertisedSegment::header_bytes);
      members_.push_back(std::launder(reinterpret_cast<SumMember*>(shared)));
    }
  }

  bool connected() const { return !members_.empty(); }
  void disconnect() { members_.clear(); }

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return members_.size(); }
  const SumMember& member(std::size_t m) const { return *members_[m]; }
  const SharedSegment& scratch() const { return segment_.scratch(); }

  /// Begins the next sum. Returns when all members have; then their summands may be read.
  void enter(const SharedArrayFinder::ArrayLocation& summand, const PlainStrides& strides) {
    wait_for_all(&SumMember::finished);
    ++sum_;
    SumMember& mine = *members_[rank_];
    mine.summand = summand;
    mine.strides = strides;
    pass(&SumMember::entered);
  }

  /// Tells the others whether this member could map their summands. Returns when all have said so.
  /// \return whether all could.
  bool all_mapped(bool mapped) {
    if (!mapped) members_[rank_]->unmapped.store(sum_, std::memory_order_relaxed);
    pass(&SumMember::mapped);
    return std::none_of(members_.begin(), members_.end(), [this](const SumMember* member) {
      return member->unmapped.load(std::memory_order_relaxed) == sum_;
    });
  }

  /// Tells the others that this member reads nothing any more.
  void finish() { members_[rank_]->finished.store(sum_, std::memory_order_release); }
  /// Returns when all members have finished: summands may change again.
  void wait_until_finished() const { wait_for_all(&SumMember::finished); }

 private:
  using Step = SumMember::Counter SumMember::*;

  /// Says that this member is so far, and waits until all are.
  void pass(Step step) {
    (members_[rank_]->*step).store(sum_, std::memory_order_release);
    wait_for_all(step);
  }

  void wait_for_all(Step step) const {
    Backoff backoff(members_.size(), comm_);
    for (const SumMember* member : members_)
      while ((member->*step).load(std::memory_order_acquire) < sum_) backoff.wait();
  }

  AdvertisedSegment segment_;  // of this rank
  std::size_t rank_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<SumMember*> members_;  // [ranks]; none: not connected
  std::vector<SharedSegment> partners_;
  std::uint64_t sum_ = 0;  // number of the one at hand
};

}  // namespace dace_redist
