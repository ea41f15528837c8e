// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How a receiver reduces the partial results of its senders: all that belong to the same elements at once.

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "copy/reduce_blocks.hpp"
#include "node/node_messages.hpp"
#include "node/staged_protocol.hpp"

namespace dace_redist {

/// The partial results of a part of the target: a message of each replica of the source, or what stays on this rank, in
/// the order in which they are reduced. They are cut in the same way, and reduced piece by piece. A piece of a message
/// is pulled, or comes through the ring.
class PartialResults {
 public:
  /// \param channels  at least one, in the order of their turns; must outlive this.
  PartialResults(std::vector<Channel*> channels, const ReductionSteps& steps)
      : channels_(std::move(channels)), steps_(&steps) {
    blocks_.reserve(channels_.size());
  }

  bool done() const { return first().cutter.done(); }
  /// Bytes of the target that are reduced.
  Index target_bytes() const { return first().message.count * steps_->target_bytes(); }
  /// Where the next piece lies in the target.
  Index position() const { return first().cutter.part().target_offset; }

  /// Whether the next piece of each partial result can be read.
  bool ready() const {
    return std::all_of(channels_.begin(), channels_.end(), [](const Channel* channel) {
      if (channel->is_own() || channel->protocol == Protocol::pull) return true;
      return channel->protocol == Protocol::staged && StagedProtocol::has_piece(*channel);
    });
  }

  /// Reduces the next piece.
  void receive(ExchangeState& exchange) {
    const trace::Span span("reduce");
    const bool timed = first().timed;
    const double seconds = timed ? seconds_per_byte([&] { return reduce_piece(exchange); }) : 0;
    if (!timed) reduce_piece(exchange);
    for (Channel* channel : channels_) {
      if (timed) channel->piece_time.add(seconds);
      if (channel->protocol == Protocol::staged) StagedProtocol::give_back_slot(*channel);
      if (channel->protocol == Protocol::pull && channel->cutter.done())
        channel->ring.state->finished.store(exchange.number, std::memory_order_release);
      exchange.close_if_done(*channel);
    }
  }

 private:
  Channel& first() const { return *channels_.front(); }

  /// \return the bytes of its messages.
  Index reduce_piece(const ExchangeState& exchange) {
    MessageCutter& cutter = first().cutter;
    const bool stream = exchange.stream_unpacked;
    const Index count = cutter.take(first().part_count, [&](Index taken) {
      const BlockGroup& group = cutter.groups()[cutter.group()];
      const std::size_t several = cutter.several_blocks() ? group.count : 1;
      for (std::size_t b = 0; b < several; ++b) {
        blocks_.clear();
        for (std::size_t turn = 0; turn < channels_.size(); ++turn) {
          Channel& channel = *channels_[turn];
          const StridedBlock& block = several > 1 ? channel.message.blocks[group.first + b] : channel.cutter.part();
          blocks_.push_back(partial(exchange, channel, static_cast<Index>(turn), block, taken));
        }
        taken += blocks_.front().block.count();
        reduce_blocks(blocks_, steps_->target_bytes(), exchange.target, stream);
      }
      for (std::size_t turn = 1; turn < channels_.size(); ++turn) channels_[turn]->cutter.advance();
    });
    return count * exchange.steps->message_bytes() * static_cast<Index>(channels_.size());
  }

  /// A block of a partial result.
  /// \param taken  elements of the piece that come before it.
  PartialBlock partial(const ExchangeState& exchange, const Channel& channel, Index turn, const StridedBlock& block,
                       Index taken) const {
    const bool packed = !channel.is_own() && channel.protocol == Protocol::staged;
    PartialBlock made = steps_->partial(turn, packed);
    made.block = packed ? from_packed(block, taken) : block;
    made.source = packed ? channel.ring.slot(channel.total) : channel.is_own() ? exchange.source : channel.partner;
    return made;
  }

  std::vector<Channel*> channels_;
  const ReductionSteps* steps_;
  std::vector<PartialBlock> blocks_;  // scratch
};

/// All partial results that a rank reduces.
class ReducedMessages {
 public:
  /// Finds the messages that belong to the same elements. Local; may be called again, when they are planned anew.
  void prepare(NodeMessages& messages, const ReductionSteps& steps) {
    std::map<Index, std::vector<Channel*>> parts;  // by their first element in the target
    const auto add = [&parts](Channel& channel) {
      if (channel.message.count > 0) parts[channel.message.blocks[0].target_offset].push_back(&channel);
    };
    add(messages.sends()[0]);
    for (Channel& channel : messages.receives()) add(channel);
    parts_.clear();
    for (auto& [offset, channels] : parts) {
      std::sort(channels.begin(), channels.end(),
                [](const Channel* a, const Channel* b) { return a->message.turn < b->message.turn; });
      parts_.emplace_back(std::move(channels), steps);
    }
  }

  /// Reduces the piece that lies first in the target, of those whose partial results are all there.
  /// \return whether there was one.
  bool receive(ExchangeState& exchange) {
    PartialResults* first = nullptr;
    for (PartialResults& part : parts_)
      if (!part.done() && (!first || part.position() < first->position()) && part.ready()) first = &part;
    if (first) first->receive(exchange);
    return first != nullptr;
  }

  /// Bytes of the target that this rank reduces.
  Index target_bytes() const {
    return std::accumulate(parts_.begin(), parts_.end(), Index{0},
                           [](Index nbytes, const PartialResults& part) { return nbytes + part.target_bytes(); });
  }

 private:
  std::vector<PartialResults> parts_;
};

}  // namespace dace_redist
