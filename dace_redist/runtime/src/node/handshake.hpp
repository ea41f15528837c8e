// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How sender and receiver of each message agree, anew in each exchange, on the protocol that moves it.

#include <vector>

#include "node/node_messages.hpp"
#include "node/protocol_limits.hpp"
#include "node/pull_protocol.hpp"
#include "node/push_protocol.hpp"
#include "node/read_protocol.hpp"

namespace dace_redist {

/// A receiver advertises its target, the sender decides and advertises its source where the receiver needs it, the
/// receiver accepts or refuses, and who was refused decides again. See MessageState for the states of a message.
class Handshake {
 public:
  /// Advertises this rank's target to its senders.
  void begin(const ExchangeState& exchange, NodeMessages& messages, const SharedArrayFinder::ArrayLocation& target) {
    const Index most_copied = messages.sent_bytes() + messages.received_bytes();
    for (Channel& channel : messages.receives()) {
      channel.begin();
      channel.ring.state->target = {
          target, PlainStrides(messages.target_layout()), 0, 0, most_copied, channel.piece_time.take()};
      channel.ring.state->entered.store(exchange.number, std::memory_order_release);
    }
    undecided_ = receivers_ = messages.sends().size() - 1;
    left_to_copy_ = messages.sent_bytes();
    spins_left_ = spin_limit;
  }

  /// For the sender. Decides on a protocol for every receiver that has come since.
  /// \return whether there was one.
  bool decide(const ExchangeState& exchange, NodeMessages& messages) {
    if (undecided_ == 0) return false;
    bool any = false;
    for (Channel& channel : messages.sends()) {
      if (channel.protocol != Protocol::undecided || !channel.ring.state->has_entered(exchange.number)) continue;
      messages.update_target(channel, channel.ring.state->target.strides);
      decide(exchange, messages, channel);
      --undecided_;
      any = true;
    }
    return any;
  }

  /// For the sender, once in each round. Sending begins when all receivers are there or the spin limit is reached.
  /// \return whether to wait.
  bool waits_for_receivers() {
    if (undecided_ == 0 || spins_left_ == 0) return false;
    --spins_left_;
    return true;
  }

  /// For the sender. Looks whether receivers have copied what they were to, or have refused.
  /// \return whether one did.
  static bool check_receivers(ExchangeState& exchange, std::vector<Channel>& sends) {
    bool any = false;
    for (Channel& channel : sends) {
      if (channel.done || (channel.protocol != Protocol::pull && channel.protocol != Protocol::read)) continue;
      if (channel.ring.state->is_refused(exchange.number)) {
        const bool push = channel.protocol == Protocol::read && channel.partner;
        set_protocol(exchange, channel, push ? Protocol::push : Protocol::staged);
        any = true;
      } else {
        any |= channel.protocol == Protocol::pull ? PullProtocol::complete(exchange, channel)
                                                  : ReadProtocol::complete(exchange, channel);
      }
    }
    return any;
  }

  /// For the receiver. Takes note of the sender's decision, once it is made.
  /// \return whether anything has changed.
  static bool accept(const ExchangeState& exchange, NodeMessages& messages, Channel& channel) {
    MessageState& state = *channel.ring.state;
    const Protocol protocol = state.decided(exchange.number);
    if (protocol == Protocol::undecided) return false;
    if (protocol == Protocol::pull || protocol == Protocol::read) {
      if (state.refused.load(std::memory_order_relaxed) == exchange.number) return false;  // waits for another one
      if (!(protocol == Protocol::pull ? PullProtocol::connect(channel) : ReadProtocol::connect(channel))) {
        state.refused.store(exchange.number, std::memory_order_release);
        return true;
      }
      messages.update_source(channel, state.source.strides);
    }
    if (protocol == Protocol::read) ReadProtocol::begin(exchange, channel);
    channel.protocol = protocol;
    return true;
  }

 private:
  static constexpr int spin_limit = 256;  // rounds until a sender begins though some receivers are not there yet

  void decide(const ExchangeState& exchange, const NodeMessages& messages, Channel& channel) {
    if (!exchange.reduces) PushProtocol::connect(channel);
    const Protocol protocol = best_protocol(exchange, channel);
    if (protocol == Protocol::pull) PullProtocol::advertise(exchange, channel, messages.source_layout());
    if (protocol == Protocol::read) {
      ReadProtocol::advertise(exchange, channel, messages.source_layout());
      left_to_copy_ -= messages.bytes_of(channel);
    }
    set_protocol(exchange, channel, protocol);
  }

  bool scatters(const ExchangeState& exchange, const Channel& channel) const {
    return static_cast<Index>(receivers_) >= several_receivers && exchange.large_source() &&
           channel.longest_source_run <= longest_scattered_run;
  }

  /// The protocol for a receiver into whose target this rank can write, or cannot (`channel.partner` is null).
  Protocol best_protocol(const ExchangeState& exchange, const Channel& channel) const {
    if (exchange.reduces) return exchange.source_location.shared ? Protocol::pull : Protocol::staged;
    if (exchange.source_location.shared) {
      if (channel.partner) return channel.pulls_better() ? Protocol::pull : Protocol::push;
      return scatters(exchange, channel) ? Protocol::staged : Protocol::pull;
    }
    const bool readable = ReadProtocol::suits(channel);
    const bool less_to_copy = channel.ring.state->target.most_copied < left_to_copy_;
    if (channel.partner && !(readable && less_to_copy)) return Protocol::push;
    return readable ? Protocol::read : Protocol::staged;
  }

  /// For the sender. What the receiver has advertised for this exchange holds.
  static void set_protocol(const ExchangeState& exchange, Channel& channel, Protocol protocol) {
    const double packing = channel.piece_time.take(), unpacking = channel.ring.state->target.unpack_seconds;
    if (packing > 0 && unpacking > 0) channel.stores.learn(packing + unpacking);
    channel.streams = protocol == Protocol::staged && channel.timed && channel.stores.streams();
    channel.protocol = protocol;
    channel.ring.state->decide(exchange.number, protocol);
  }

  std::size_t receivers_ = 0;  // other ranks that this one sends to
  std::size_t undecided_ = 0;  // of them
  Index left_to_copy_ = 0;     // bytes sent that no receiver has been left to read
  int spins_left_ = 0;
};

}  // namespace dace_redist
