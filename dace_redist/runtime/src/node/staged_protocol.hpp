// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Staged: the sender packs pieces into free slots of a ring in node-shared memory, the receiver unpacks them while
/// they are in the cache.

#include "node/copy_engine.hpp"

namespace dace_redist {

/// The steps of a staged message. It needs nothing of the arrays, so it takes what no other protocol can move.
struct StagedProtocol {
  /// For the sender. Loads the receiver's counter only when the slots seem to be used up.
  static bool has_free_slot(Channel& channel) {
    const auto slots = static_cast<std::uint64_t>(channel.ring.slots);
    if (channel.total - channel.read_seen < slots) return true;
    channel.read_seen = channel.ring.state->read.load(std::memory_order_acquire);
    return channel.total - channel.read_seen < slots;
  }

  /// For the sender. Packs the next pieces; each channel must have a free slot.
  static void send(ExchangeState& exchange, const LevelChannels& level) {
    const trace::Span span = level.span("pack");
    if (level.first().timed) {
      const double seconds = seconds_per_byte([&] { return pack(exchange, level); });
      for (Channel* channel : level) channel->piece_time.add(seconds);
    } else {
      pack(exchange, level);
    }
    for (Channel* channel : level) {
      channel->ring.state->written.store(++channel->total, std::memory_order_release);
      exchange.close_if_done(*channel);
    }
  }

  /// For the receiver. Unpacks what has arrived.
  /// \return whether that was anything.
  static bool receive(ExchangeState& exchange, Channel& channel) {
    bool any = false;
    while (!channel.cutter.done() && has_piece(channel)) {
      if (channel.timed)
        channel.piece_time.add(seconds_per_byte([&] { return unpack_piece(exchange, channel); }));
      else
        unpack_piece(exchange, channel);
      give_back_slot(channel);
      any = true;
    }
    exchange.close_if_done(channel);
    return any;
  }

  /// For the receiver.
  /// \return whether a piece has arrived that is not yet read.
  static bool has_piece(const Channel& channel) {
    return channel.ring.state->written.load(std::memory_order_acquire) != channel.total;
  }

  /// For the receiver. The piece that has arrived first was read.
  static void give_back_slot(Channel& channel) {
    channel.ring.state->read.store(++channel.total, std::memory_order_release);
  }

 private:
  /// The next piece of each channel, from the array to its slot.
  /// \return their bytes.
  static Index pack(const ExchangeState& exchange, const LevelChannels& level) {
    const ElementStep& step = exchange.steps->pack();
    const Index element_bytes = exchange.steps->message_bytes();
    const bool streams = level.first().streams;
    const Index taken = copy_pieces(level, step, true, streams, [&](const Channel& channel, Index before) {
      return CopyEndpoints{exchange.source, channel.ring.slot(channel.total) + before * element_bytes};
    });
    return taken * element_bytes * static_cast<Index>(level.count());
  }

  /// The next piece, from its slot to the array.
  /// \return its bytes.
  static Index unpack_piece(const ExchangeState& exchange, Channel& channel) {
    const trace::Span span("unpack", channel.peer);
    MessageCutter& cutter = channel.cutter;
    const char* const slot = channel.ring.slot(channel.total);
    const Index count = cutter.take(channel.part_count, [&](Index taken) {
      const ElementStep& step = exchange.steps->unpack();
      const char* const from = slot + taken * step.source_bytes;
      if (step.kernel)
        apply(step, channel, from, exchange.target, exchange.stream_unpacked);
      else if (cutter.several_blocks())
        channel.packed[cutter.group()].runs.copy(from, exchange.target);
      else if (cutter.whole_group())
        copy(channel.packed[cutter.group()].block, from, exchange.target, exchange.stream_unpacked);
      else
        copy(make_copy_block(from_packed(cutter.part(), 0), step.source_bytes), from, exchange.target,
             exchange.stream_unpacked);
    });
    return count * exchange.steps->message_bytes();
  }

  static void apply(const ElementStep& step, const Channel& channel, const char* from, char* target, bool stream) {
    const MessageCutter& cutter = channel.cutter;
    if (!cutter.whole_group())
      return step.kernel->apply(make_element_block(from_packed(cutter.part(), 0), step.source_bytes, step.target_bytes),
                                from, target, stream);
    for (const ElementBlock& block : channel.packed[cutter.group()].elements)
      step.kernel->apply(block, from, target, stream);
  }
};

}  // namespace dace_redist
