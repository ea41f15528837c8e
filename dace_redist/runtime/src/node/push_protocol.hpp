// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Push: the target array lies in node-shared memory, the sender copies into it.

#include "node/copy_engine.hpp"

namespace dace_redist {

/// The steps of a pushed message. What stays on the rank is pushed, too: into the rank's own target, without a partner.
struct PushProtocol {
  /// For the sender. Maps the target that the receiver has advertised.
  /// \return whether it can be written; `channel.partner` is null else.
  static bool connect(Channel& channel) {
    const SharedArrayFinder::ArrayLocation& theirs = channel.ring.state->target.location;
    char* const segment = theirs.shared ? channel.arrays.segment(theirs.name) : nullptr;
    channel.partner = segment ? segment + theirs.offset : nullptr;
    return segment != nullptr;
  }

  /// For the sender. Copies the next pieces.
  static void send(ExchangeState& exchange, const LevelChannels& level) {
    const bool own = level.first().is_own() && level.count() == 1;
    const trace::Span span = level.span(own ? "copy" : "push");
    copy_pieces(level, exchange.steps->direct(), false, own ? exchange.stream_own : exchange.stream_pushed,
                [&exchange](const Channel& channel, Index) {
                  return CopyEndpoints{exchange.source, channel.partner};
                });
    for (Channel* channel : level) {
      if (channel->cutter.done() && !channel->is_own())
        channel->ring.state->finished.store(exchange.number, std::memory_order_release);
      exchange.close_if_done(*channel);
    }
  }

  /// For the receiver.
  /// \return whether the message has arrived.
  static bool receive(ExchangeState& exchange, Channel& channel) {
    if (!channel.ring.state->is_finished(exchange.number)) return false;
    exchange.close(channel);
    return true;
  }
};

}  // namespace dace_redist
