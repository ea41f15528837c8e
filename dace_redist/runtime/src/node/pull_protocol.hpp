// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Pull: the source array lies in node-shared memory, the receiver copies out of it.

#include "node/copy_engine.hpp"

namespace dace_redist {

/// The steps of a pulled message.
struct PullProtocol {
  /// For the sender, before it decides for this protocol. Advertises its source.
  static void advertise(const ExchangeState& exchange, Channel& channel, const LocalLayout& source) {
    channel.ring.state->source = {exchange.source_location, PlainStrides(source), 0, 0, 0};
  }

  /// For the receiver. Maps the source.
  /// \return whether it can be read; else the receiver refuses.
  static bool connect(Channel& channel) {
    const SharedArrayFinder::ArrayLocation& theirs = channel.ring.state->source.location;
    char* const segment = channel.arrays.segment(theirs.name);
    channel.partner = segment ? segment + theirs.offset : nullptr;
    return segment != nullptr;
  }

  /// For the receiver. Copies the next pieces.
  static void receive(ExchangeState& exchange, const LevelChannels& level) {
    const trace::Span span = level.span("pull");
    copy_pieces(level, exchange.steps->direct(), false, exchange.stream_pulled,
                [&exchange](const Channel& channel, Index) {
                  return CopyEndpoints{channel.partner, exchange.target};
                });
    for (Channel* channel : level) {
      if (channel->cutter.done()) channel->ring.state->finished.store(exchange.number, std::memory_order_release);
      exchange.close_if_done(*channel);
    }
  }

  /// For the sender. Ends the message once the receiver has copied all of it.
  /// \return whether it has.
  static bool complete(ExchangeState& exchange, Channel& channel) {
    if (!channel.ring.state->is_finished(exchange.number)) return false;
    exchange.close(channel);
    return true;
  }
};

}  // namespace dace_redist
