// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Cross-memory read: the source lies in private memory, the kernel copies out of it for the receiver.

#include <unistd.h>

#include <cstdint>

#include "node/protocol_limits.hpp"
#include "node/pull_protocol.hpp"
#include "node/remote_read.hpp"

namespace dace_redist {

/// The steps of a message that the receiver reads out of the sender's private memory.
struct ReadProtocol {
  /// \return whether all runs of a message are long enough for the kernel.
  static bool suits(const Channel& channel) { return channel.shortest_run >= shortest_remote_run; }

  /// For the sender, before it decides for this protocol. Advertises its source.
  static void advertise(const ExchangeState& exchange, Channel& channel, const LocalLayout& source) {
    const auto address = reinterpret_cast<std::uintptr_t>(exchange.source);
    channel.ring.state->source = {{}, PlainStrides(source), address, getpid(), 0, 0};
  }

  /// For the receiver.
  /// \return whether the kernel lets it read the source; else the receiver refuses.
  static bool connect(const Channel& channel) {
    const AdvertisedArray& theirs = channel.ring.state->source;
    return can_read(static_cast<pid_t>(theirs.process), theirs.address);
  }

  /// For the receiver, before the first piece. Pieces are larger than those of other protocols.
  static void begin(const ExchangeState& exchange, Channel& channel) {
    channel.cutter.restart(remote_read_bytes / exchange.steps->message_bytes());
  }

  /// For the receiver. Reads the next piece; if the kernel refuses, the message begins anew, by another protocol.
  static void receive(ExchangeState& exchange, Channel& channel) {
    const trace::Span span("read", channel.peer);
    const AdvertisedArray& theirs = channel.ring.state->source;
    bool copied = true;
    channel.cutter.take(remote_read_bytes / exchange.steps->message_bytes(), [&](Index) {
      const MessageCutter& cutter = channel.cutter;
      const CopyBlock block = cutter.whole_group() ? channel.direct[cutter.group()].block
                                                   : make_copy_block(cutter.part(), exchange.steps->message_bytes());
      copied = copied && copy_from(block, static_cast<pid_t>(theirs.process), theirs.address, exchange.target);
    });
    if (!copied) {
      channel.begin();
      channel.ring.state->refused.store(exchange.number, std::memory_order_release);
      return;
    }
    if (channel.cutter.done()) channel.ring.state->finished.store(exchange.number, std::memory_order_release);
    exchange.close_if_done(channel);
  }

  /// For the sender, see PullProtocol::complete().
  static bool complete(ExchangeState& exchange, Channel& channel) { return PullProtocol::complete(exchange, channel); }
};

}  // namespace dace_redist
