// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages that move in chunks through a small ring of buffers, so that packing, sending, receiving and unpacking
/// overlap and the extra memory does not grow with the tensor.
/// Sources: Lundwall et al., Accelerating Redistribution of Tensors, section 3; T. Schneider, R. Gerstenberger,
/// T. Hoefler, Compiler transformed remote puts (LCPC 2013).

#include <algorithm>
#include <vector>

#include "copy/packing.hpp"
#include "core/mpi.hpp"
#include "plan/description.hpp"

namespace dace_redist {

/// Messages over MPI, a number of chunks in flight per direction.
///
/// Extra memory: 2 * depth * chunk_bytes at the most.
///
/// Cannot deadlock: every transfer has a round, (target - source) mod ranks, and both sides go through their chunks by
/// round. Of all transfers that are not done take the one of the lowest round and chunk: all before it are done on
/// both sides, so both have a free slot for it, or have posted it, and its sender has received what it waits for.
///
/// A rank sends no more than a few chunks ahead of what it has received in the same rounds. Otherwise ranks get out of
/// step, several send to one at the same time, and where its link is the limit, packets are dropped.
class ChunkPipeline {
 public:
  /// \param sends, receives  in the order of rounds.
  void prepare(MPI_Comm comm, int tag, const std::vector<Message>& sends, const std::vector<Message>& receives,
               const ElementSteps& steps, const Options& options) {
    comm_ = comm;
    tag_ = tag;
    const std::size_t depth = static_cast<std::size_t>(options.depth);
    requests_.assign(2 * depth, MPI_REQUEST_NULL);
    completed_.resize(2 * depth);
    fill(receives_, receives, unpack_plan, 0, steps, options);
    fill(sends_, sends, pack_plan, depth, steps, options);
    waiting_slots_.reserve(depth);
    set_received_before();
  }

  /// Posts what the rings hold of both directions.
  void begin(const char* source, char* target) {
    source_ = source;
    target_ = target;
    sends_.posted = sends_.done = receives_.posted = receives_.done = 0;
    waiting_slots_.clear();
    for (std::size_t slot = 0; slot < receives_.chunk_in.size(); ++slot) receive_next(slot);
    for (std::size_t slot = 0; slot < sends_.chunk_in.size(); ++slot) send_next(slot);
  }

  bool finished() const { return sends_.finished() && receives_.finished(); }

  /// Goes on where a transfer has completed; waits for one, if there is none yet.
  void wait() {
    int count = 0;
    {
      const trace::Span span("wait");
      check(MPI_Waitsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Waitsome");
    }
    go_on(count);
  }

  /// Goes on where a transfer has completed; false if none has.
  bool progress() {
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count == MPI_UNDEFINED) return false;
    go_on(count);
    return count > 0;
  }

 private:
  /// One direction: its chunks in order and a ring of slots they pass through.
  struct Ring {
    std::vector<PackedChunk> chunks;
    std::vector<Index> rounds;  // [chunks]
    std::size_t posted = 0, done = 0;
    Buffer buffer;
    Index slot_bytes = 0;
    std::vector<std::size_t> chunk_in;  // [depth] chunk each slot holds
    std::size_t first_request = 0;      // index of slot 0 in requests_

    char* slot(std::size_t index) const { return buffer.at(static_cast<Index>(index) * slot_bytes); }
    bool finished() const { return done == chunks.size(); }
  };

  template <class MakePlan>
  static void fill(Ring& ring, const std::vector<Message>& messages, MakePlan make_plan, std::size_t first_request,
                   const ElementSteps& steps, const Options& options) {
    ring = Ring{};
    ring.first_request = first_request;
    const Index chunk_bytes = std::min(options.chunk_bytes, options.max_message_bytes);
    for (const Message& message : messages)
      for (const Chunk& chunk : cut(message, chunk_bytes / steps.message_bytes(), options.growth)) {
        ring.chunks.push_back(make_plan(chunk, steps));
        ring.rounds.push_back(message.round);
        if (!ring.chunks.back().in_place) ring.slot_bytes = std::max(ring.slot_bytes, ring.chunks.back().nbytes);
      }
    const std::size_t slots = std::min(static_cast<std::size_t>(options.depth), ring.chunks.size());
    ring.slot_bytes = ceil_div(ring.slot_bytes, 64) * 64;
    ring.buffer = Buffer(static_cast<Index>(slots) * ring.slot_bytes);
    ring.chunk_in.assign(slots, 0);
  }

  void go_on(int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
      if (request >= sends_.first_request) {
        ++sends_.done;
        send_next(request - sends_.first_request);
      } else {
        unpack(request);
        receive_next(request);
        send_waiting();
      }
    }
  }

  /// Counts the chunks of lower rounds, and those before in the same round, less those that a rank may be ahead.
  void set_received_before() {
    received_before_.assign(sends_.chunks.size(), 0);
    const std::vector<Index>&sent = sends_.rounds, &received = receives_.rounds;
    for (std::size_t s = 0; s < sent.size(); ++s) {
      const auto [first, last] = std::equal_range(received.begin(), received.end(), sent[s]);
      const auto in_round = std::lower_bound(sent.begin(), sent.end(), sent[s]) - sent.begin();
      const Index before = std::min(static_cast<Index>(s) - in_round, static_cast<Index>(last - first));
      received_before_[s] =
          static_cast<std::size_t>(std::max<Index>(0, first - received.begin() + before - most_ahead));
    }
  }

  /// Goes on with the slots that waited for something to be received.
  void send_waiting() {
    while (!waiting_slots_.empty() && sends_.posted < sends_.chunks.size() &&
           receives_.done >= received_before_[sends_.posted]) {
      const std::size_t slot = waiting_slots_.back();
      waiting_slots_.pop_back();
      send_next(slot);
    }
  }

  void send_next(std::size_t slot) {
    if (sends_.posted == sends_.chunks.size()) return;
    if (receives_.done < received_before_[sends_.posted]) return waiting_slots_.push_back(slot);
    const PackedChunk& chunk = sends_.chunks[sends_.posted++];
    if (!chunk.in_place) chunk.pack(source_, sends_.slot(slot));
    const trace::Span span("send", chunk.peer, chunk.nbytes);
    check(MPI_Isend(chunk.in_place ? source_ + chunk.array_offset : sends_.slot(slot), static_cast<int>(chunk.nbytes),
                    MPI_BYTE, chunk.peer, tag_, comm_, &requests_[sends_.first_request + slot]),
          "MPI_Isend");
  }

  void receive_next(std::size_t slot) {
    if (receives_.posted == receives_.chunks.size()) return;
    const PackedChunk& chunk = receives_.chunks[receives_.posted];
    receives_.chunk_in[slot] = receives_.posted++;
    check(
        MPI_Irecv(chunk.in_place ? target_ + chunk.array_offset : receives_.slot(slot), static_cast<int>(chunk.nbytes),
                  MPI_BYTE, chunk.peer, tag_, comm_, &requests_[receives_.first_request + slot]),
        "MPI_Irecv");
  }

  void unpack(std::size_t slot) {
    const PackedChunk& chunk = receives_.chunks[receives_.chunk_in[slot]];
    if (!chunk.in_place) chunk.unpack(receives_.slot(slot), target_);
    ++receives_.done;
  }

  // Chunks. Measured: with 2 ahead links are idle now and then, with 16 packets are dropped.
  static constexpr Index most_ahead = 4;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int tag_ = 0;
  Ring receives_, sends_;
  std::vector<MPI_Request> requests_;         // [2 * depth] receive slots, then send slots
  std::vector<int> completed_;                // [2 * depth]
  std::vector<std::size_t> received_before_;  // [sent chunks] chunks that must be received before each is sent
  std::vector<std::size_t> waiting_slots_;    // of sends, for that
  const char* source_ = nullptr;              // of the exchange at hand
  char* target_ = nullptr;
};

}  // namespace dace_redist
