// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What ranks of one node move between each other's memory, with one copy where an array can be seen by its partner.

#include <vector>

#include "node/connections.hpp"
#include "node/handshake.hpp"
#include "node/partial_results.hpp"
#include "node/source_walk.hpp"

namespace dace_redist {

/// The messages between ranks of one node. Each pair of ranks moves its message by one of four protocols, chosen anew
/// in each exchange by the sender (see Handshake):
///
/// - push: the target array lies in node-shared memory; the sender copies into it;
/// - pull: the source array lies in node-shared memory, and has no short runs for each of several receivers; the
///   receiver copies out of it;
/// - read: the source does not, all runs are long, and the target does not either or its rank has less to copy than the
///   sender; the receiver has the kernel copy them out of the sender's memory;
/// - staged: in all other cases, or where memory cannot be mapped or read; the sender packs pieces into free slots of a
///   ring in shared memory, the receiver unpacks them while they are in the cache.
///
/// Messages that are partial results are pulled or staged; their receiver reduces them piece by piece, once all that
/// belong to the same elements are there (see ReducedMessages).
///
/// A sender goes through its source array once, from the lowest address to the highest, whatever receiver a piece is
/// for (see SourceWalk); a rank that pulls goes through its target in the same manner.
///
/// Extra memory: a ring of depth * slot_bytes for each rank it sends to, touched when it is used; less, down to one
/// slot each, where many rings would not fit the cache, and where messages are small.
class NodeExchange {
 public:
  using Planner = NodeMessages::Planner;

  /// Takes over the messages and this rank's own arrays. Local; may be called again, for other arrays.
  /// \param planner  this rank's messages within the node for given layouts of its partners' arrays.
  /// \param reduction  null, or what is done with messages that are partial results.
  void prepare(const Planner& planner, const LocalLayout& source, const LocalLayout& target, const ElementSteps& steps,
               const ReductionSteps* reduction, const Options& options) {
    depth_ = options.depth;
    messages_.prepare(planner, source, target, steps, options);
    exchange_.steps = &steps;
    exchange_.reduces = reduction != nullptr;
    if (reduction) reduced_.prepare(messages_, *reduction);
    choose_stores();
  }

  std::size_t send_count() const { return messages_.sends().size() - 1; }
  std::size_t receive_count() const { return messages_.receives().size(); }
  int send_peer(std::size_t s) const { return messages_.sends()[s + 1].peer; }
  int receive_peer(std::size_t r) const { return messages_.receives()[r].peer; }

  /// Allocates this rank's rings. \throws Error if there is too little shared memory.
  void allocate_rings() { connections_.allocate(messages_, depth_); }
  Endpoint endpoint_for_receiver(std::size_t s) const { return connections_.for_receiver(messages_, s); }
  Endpoint endpoint_for_sender() const { return Connections::for_sender(messages_); }

  /// Maps the rings of the senders and takes note of the partners' layouts. \throws Error if one cannot be mapped.
  void connect(const std::vector<Endpoint>& receivers, const std::vector<Endpoint>& senders) {
    connections_.connect(messages_, receivers, senders);
    choose_stores();
  }

  /// Begins an exchange: tells the senders that this rank's target may be written, and where it lies.
  void begin(const char* source, char* target) {
    exchange_.source = source;
    exchange_.target = target;
    ++exchange_.number;
    exchange_.source_location = finder_.find(source);
    const SharedArrayFinder::ArrayLocation target_location = finder_.find(target);
    exchange_.stream_own = target_location.shared ? exchange_.stream_pushed : stream_own_ordinary_;
    for (Channel& channel : messages_.sends()) channel.begin();
    Channel& own = messages_.sends()[0];
    own.protocol = Protocol::push;
    own.partner = target;
    own.done = own.cutter.done();
    handshake_.begin(exchange_, messages_, target_location);
    exchange_.open = send_count() + receive_count() + !own.done;
    if (exchange_.reduces) own.done = true;  // is reduced with what is received, not sent
    source_walk_.begin();
  }

  /// Does a little of what can be done now; false if that was nothing.
  bool progress() {
    bool any = handshake_.decide(exchange_, messages_);
    if (!handshake_.waits_for_receivers())
      any |= source_walk_.send_piece(exchange_, messages_.sends()) ||
             Handshake::check_receivers(exchange_, messages_.sends());
    any |= accept();
    any |= exchange_.reduces ? reduced_.receive(exchange_) : receive();
    return any;
  }

  bool finished() const { return exchange_.open == 0; }

 private:
  // Parts of stream_threshold_bytes() from which all that is pushed or pulled, and all that is unpacked or stays, is
  // written with non-temporal stores: what one copy brings to another rank is not wanted in this core's cache; what is
  // unpacked may well be.
  static constexpr Index direct_streamed_sooner = 8, unpacked_streamed_sooner = 2;

  void choose_stores() {
    const Index threshold = stream_threshold_bytes();
    exchange_.stream_pushed = messages_.sent_bytes() >= threshold / direct_streamed_sooner;
    exchange_.stream_pulled = messages_.received_bytes() >= threshold / direct_streamed_sooner;
    const Index unpacked_bytes = exchange_.reduces ? reduced_.target_bytes() : messages_.received_bytes();
    exchange_.stream_unpacked = unpacked_bytes >= threshold / unpacked_streamed_sooner;
    const Index own_bytes = messages_.bytes_of(messages_.sends()[0]);
    stream_own_ordinary_ = messages_.received_bytes() + own_bytes >= threshold / unpacked_streamed_sooner;
  }

  /// Takes note of what senders have decided.
  bool accept() {
    bool any = false;
    for (Channel& channel : messages_.receives())
      if (!channel.done && channel.protocol == Protocol::undecided)
        any |= Handshake::accept(exchange_, messages_, channel);
    return any;
  }

  /// Unpacks what has arrived, and pulls the piece that lies first in the target.
  bool receive() {
    bool any = false;
    Channel* first = nullptr;
    for (Channel& channel : messages_.receives()) {
      if (channel.done) continue;
      if (channel.protocol == Protocol::staged) {
        any |= StagedProtocol::receive(exchange_, channel);
      } else if (channel.protocol == Protocol::push) {
        any |= PushProtocol::receive(exchange_, channel);
      } else if (channel.protocol == Protocol::read) {
        ReadProtocol::receive(exchange_, channel);
        any = true;
      } else if (channel.protocol == Protocol::pull) {
        if (!first || channel.cutter.part().target_offset < first->cutter.part().target_offset) first = &channel;
      }
    }
    if (!first) return any;
    pulled_.collect(messages_.receives(), *first, [](const Channel&) { return true; });
    PullProtocol::receive(exchange_, pulled_);
    return true;
  }

  Index depth_ = 1;  // most slots per ring
  NodeMessages messages_;
  Connections connections_;
  SharedArrayFinder finder_{connections_.scratch()};
  ExchangeState exchange_;
  bool stream_own_ordinary_ = false;  // whether what stays goes to an ordinary array with non-temporal stores
  Handshake handshake_;
  SourceWalk source_walk_;
  LevelChannels pulled_;
  ReducedMessages reduced_;
};

}  // namespace dace_redist
