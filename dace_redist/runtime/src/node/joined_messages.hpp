// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages between two nodes as one: joined in node-shared memory, sent once, taken apart in node-shared memory.
/// Source: A. Bienz, W. Gropp, L. Olson, Reducing communication in algebraic multigrid with multi-step node aware
/// communication, IJHPCA 34(5), 2020 (there with messages on the node, here with copies).

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "copy/packing.hpp"
#include "node/joined_routes.hpp"
#include "node/message_state.hpp"

namespace dace_redist {

/// A buffer in node-shared memory that some ranks write and others read, once each in an exchange. Nobody writes
/// before all have read what was there, and nobody reads before all have written.
class JoinedBuffer {
 public:
  /// At the start of the buffer.
  struct State {
    alignas(detail::line_bytes) std::atomic<std::uint64_t> written;  ///< times that a rank has written its part
    alignas(detail::line_bytes) std::atomic<std::uint64_t> read;     ///< times that a rank has read its part
  };

  /// \param start  of the state, behind which the bytes lie.
  /// \param writes  whether this rank writes it here; else it reads.
  JoinedBuffer(char* start, std::size_t writers, std::size_t readers, bool writes)
      : state_(std::launder(reinterpret_cast<State*>(start))), writers_(writers), readers_(readers), writes_(writes) {}

  char* at(Index offset) const { return reinterpret_cast<char*>(state_ + 1) + offset; }

  /// Whether this rank may do its part in an exchange.
  /// \param exchange  counted from 1 on.
  bool ready(std::uint64_t exchange) const {
    return writes_ ? state_->read.load(std::memory_order_acquire) == (exchange - 1) * readers_
                   : state_->written.load(std::memory_order_acquire) == exchange * writers_;
  }

  /// This rank has done its part.
  void done() const { (writes_ ? state_->written : state_->read).fetch_add(1, std::memory_order_release); }

  static Index nbytes(Index message_bytes) {
    return static_cast<Index>(sizeof(State)) + ceil_div(message_bytes, detail::line_bytes) * detail::line_bytes;
  }

 private:
  State* state_;
  std::uint64_t writers_, readers_;
  bool writes_;
};

/// The joined messages in which this rank has parts.
///
/// Every rank packs what it sends into the buffer of the (source node, target node) pair. When all have, the carrier of
/// the pair sends it to the carrier of the other node, which receives it in a buffer there. Every rank unpacks its
/// parts from that.
class JoinedMessages {
 public:
  /// Allocates the buffers of the messages that this rank carries. \throws Error if there is too little shared memory.
  void allocate(JoinedRoutes& routes) {
    Index nbytes = 0;
    std::vector<Index> offsets;
    for (const auto direction : JoinedRoutes::directions)
      for (auto& [node, end] : routes.ends(direction)) {
        if (end.carrier != routes.rank()) continue;
        end.buffer_offset = AdvertisedSegment::header_bytes + nbytes;
        offsets.push_back(end.buffer_offset);
        nbytes += JoinedBuffer::nbytes(end.nbytes);
      }
    if (offsets.empty()) return;
    segment_.allocate(nbytes);
    for (const Index offset : offsets) new (segment_.at(offset)) JoinedBuffer::State{};
  }
  SegmentEndpoint endpoint() const { return segment_.endpoint(); }

  /// Maps the buffers of the other carriers. \throws Error if one cannot be mapped.
  /// \param segments  see JoinedRoutes::exchange_endpoints().
  void connect(MPI_Comm comm, int tag, JoinedRoutes& routes, const std::map<int, SegmentEndpoint>& segments,
               Index piece_bytes) {
    comm_ = comm;
    tag_ = tag;
    piece_bytes_ = piece_bytes;
    for (const auto& [rank, endpoint] : segments)
      if (rank != routes.rank() && !AdvertisedSegment::map(endpoint, segments_[rank]))
        throw Error(text("process ", endpoint.segment.process, " is not rank ", rank,
                         ": the ranks of this node do not see each other's processes"));
    for (const auto direction : JoinedRoutes::directions) add_ends(routes, direction);
    completed_.resize(transfer_of_.size());
    requests_.assign(transfer_of_.size(), MPI_REQUEST_NULL);
  }

  /// Sends each message on its own from now on.
  void disconnect() { *this = JoinedMessages(); }

  /// Whether a message is joined with others.
  bool sends(Index peer) const { return places_[JoinedRoutes::sending].count(static_cast<int>(peer)) > 0; }
  bool receives(Index peer) const { return places_[JoinedRoutes::receiving].count(static_cast<int>(peer)) > 0; }

  /// Takes over the messages. Local; may be called again, for other arrays.
  void prepare(const std::vector<Message>& sends, const std::vector<Message>& receives, const ElementSteps& steps) {
    for (const auto direction : JoinedRoutes::directions)
      for (Copies& copies : copies_[direction]) copies.parts.clear();
    for (const Message& message : sends)
      add_part(JoinedRoutes::sending, pack_plan({message.peer, message.count, message.blocks}, steps));
    for (const Message& message : receives)
      add_part(JoinedRoutes::receiving, unpack_plan({message.peer, message.count, message.blocks}, steps));
  }

  /// Begins an exchange; waits for no other rank.
  void begin(const char* source, char* target) {
    source_ = source;
    target_ = target;
    ++exchange_;
    for (auto& list : copies_)
      for (Copies& copies : list) copies.open = true;
    for (Transfer& transfer : transfers_) transfer.started = false;
    open_ = copies_[0].size() + copies_[1].size() + transfers_.size();
    if (open_ > 0) progress();
  }

  bool finished() const { return open_ == 0; }

  /// Does what can be done now; false if that was nothing.
  bool progress() {
    bool any = copy_ready(JoinedRoutes::sending);
    for (Transfer& transfer : transfers_)
      if (!transfer.started && transfer.buffer.ready(exchange_)) {
        start(transfer);
        any = true;
      }
    if (under_way_ > 0) any |= complete();
    any |= copy_ready(JoinedRoutes::receiving);
    return any;
  }

 private:
  /// A message of this rank in a joined message.
  struct Part {
    CopyList copies;
    Index offset;  // bytes, in the joined message
  };
  /// The parts of this rank in one joined message.
  struct Copies {
    JoinedBuffer buffer;
    std::vector<Part> parts;
    bool open;  // in the exchange at hand
  };
  /// A joined message that this rank carries.
  struct Transfer {
    JoinedBuffer buffer;
    Index nbytes;
    int peer;
    bool sends;
    std::size_t first_request;
    std::size_t open;  // requests of the exchange at hand
    bool started;      // in the exchange at hand
  };
  struct Place {
    std::size_t copies;
    Index offset;  // bytes, in the joined message
  };

  void add_ends(JoinedRoutes& routes, JoinedRoutes::Direction direction) {
    const bool sends = direction == JoinedRoutes::sending;
    std::map<int, std::size_t> number_of;  // by node
    // the node behind this one first, so that not all nodes begin with the same one
    std::vector<std::pair<int, JoinedEnd>> ends(routes.ends(direction).begin(), routes.ends(direction).end());
    const int here = routes.node_of(routes.rank());
    std::rotate(ends.begin(), std::find_if(ends.begin(), ends.end(), [&](const auto& end) { return end.first > here; }),
                ends.end());
    for (const auto& [node, end] : ends) {
      const SharedSegment* const segment = end.carrier == routes.rank() ? nullptr : &segments_.at(end.carrier);
      char* const start = segment ? segment->at(end.buffer_offset) : segment_.at(end.buffer_offset);
      const std::size_t ranks = end.ranks.size(), writers = sends ? ranks : 1, readers = sends ? 1 : ranks;
      number_of[node] = copies_[direction].size();
      copies_[direction].push_back({JoinedBuffer(start, writers, readers, sends), {}, false});
      if (segment) continue;
      transfers_.push_back(
          {JoinedBuffer(start, writers, readers, !sends), end.nbytes, end.peer, sends, transfer_of_.size(), 0, false});
      const Index pieces = ceil_div(end.nbytes, piece_bytes_);
      transfer_of_.insert(transfer_of_.end(), static_cast<std::size_t>(pieces), transfers_.size() - 1);
    }
    for (const JoinedPart& part : routes.parts(direction))
      places_[direction][part.peer] = {number_of.at(routes.node_of(part.peer)), part.offset};
  }

  void add_part(JoinedRoutes::Direction direction, PackedChunk chunk) {
    const Place& place = places_[direction].at(chunk.peer);
    copies_[direction][place.copies].parts.push_back({std::move(chunk.copies), place.offset});
  }

  /// Packs what may be packed, or unpacks what has arrived; false if that was nothing.
  bool copy_ready(JoinedRoutes::Direction direction) {
    bool any = false;
    for (Copies& copies : copies_[direction]) {
      if (!copies.open || !copies.buffer.ready(exchange_)) continue;
      const trace::Span span(direction == JoinedRoutes::sending ? "pack" : "unpack");
      for (const Part& part : copies.parts)
        if (direction == JoinedRoutes::sending)
          part.copies.copy(source_, copies.buffer.at(part.offset));
        else
          part.copies.copy(copies.buffer.at(part.offset), target_);
      copies.buffer.done();
      copies.open = false;
      --open_;
      any = true;
    }
    return any;
  }

  /// Starts to send or receive a joined message, in as many messages as its size needs.
  void start(Transfer& transfer) {
    transfer.started = true;
    for (Index at = 0; at < transfer.nbytes; at += piece_bytes_) {
      const int count = static_cast<int>(std::min(transfer.nbytes - at, piece_bytes_));
      MPI_Request* const request = &requests_[transfer.first_request + transfer.open++];
      if (!transfer.sends) {
        check(MPI_Irecv(transfer.buffer.at(at), count, MPI_BYTE, transfer.peer, tag_, comm_, request), "MPI_Irecv");
        continue;
      }
      const trace::Span span("send", transfer.peer, count);
      check(MPI_Isend(transfer.buffer.at(at), count, MPI_BYTE, transfer.peer, tag_, comm_, request), "MPI_Isend");
    }
    under_way_ += transfer.open;
  }

  /// Looks which transfers have completed; false if none has.
  bool complete() {
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    for (int i = 0; i < count; ++i) {
      Transfer& transfer = transfers_[transfer_of_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)])]];
      --under_way_;
      if (--transfer.open > 0) continue;
      transfer.buffer.done();
      --open_;
    }
    return count > 0;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int tag_ = 0;
  Index piece_bytes_ = 1;
  AdvertisedSegment segment_;                   // the buffers of what this rank carries
  std::map<int, SharedSegment> segments_;       // those of other carriers, by rank
  std::array<std::map<int, Place>, 2> places_;  // by direction and peer
  std::array<std::vector<Copies>, 2> copies_;   // by direction
  std::vector<Transfer> transfers_;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> transfer_of_;  // [requests]
  std::vector<int> completed_;            // [requests]

  // Of the exchange at hand:
  std::uint64_t exchange_ = 0;  // counted from 1 on
  std::size_t open_ = 0;        // copies and transfers that are not done
  std::size_t under_way_ = 0;   // requests
  const char* source_ = nullptr;
  char* target_ = nullptr;
};

}  // namespace dace_redist
