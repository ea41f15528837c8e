// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The order in which a sender copies: once through its source, from the lowest address to the highest, whatever
/// receiver a piece is for.

#include <algorithm>
#include <vector>

#include "node/push_protocol.hpp"
#include "node/staged_protocol.hpp"

namespace dace_redist {

/// Copies what a rank pushes or packs. The first channel is what stays on the rank.
class SourceWalk {
 public:
  void begin() { slot_spins_ = 0; }

  /// Copies or packs the piece that lies first in the source, and those of other receivers that lie beside it. For a
  /// receiver among these without a free slot it waits a little, so that rows go on being read once for all.
  /// \return false if there is nothing to send, or no room for it.
  bool send_piece(ExchangeState& exchange, std::vector<Channel>& sends) {
    Channel* first = first_in_source(sends, false);
    if (!first) return false;
    if (all_have_room(sends, *first)) {
      slot_spins_ = 0;
    } else {
      if (slot_spins_ < slot_spin_limit) ++slot_spins_;
      first = slot_spins_ < slot_spin_limit ? nullptr : first_in_source(sends, true);
      if (!first) return false;
    }
    collect(sends, *first);
    send(exchange);
    // what is pushed waits for nobody: go on before looking at all channels again
    for (int more = 1; more < pushes_in_a_row && first->protocol == Protocol::push && !first->done; ++more)
      PushProtocol::send(exchange, level_);
    // what stays is copied at once, while the rows are in the cache
    if (!first->is_own() && first_in_source(sends, false) == &sends[0]) {
      collect(sends, sends[0]);
      send(exchange);
    }
    return true;
  }

 private:
  static constexpr int pushes_in_a_row = 16;
  static constexpr int slot_spin_limit = 64;  // calls until a sender goes on without the slowest of its receivers

  /// The channel whose next piece lies first in the source; of those that have room for it, if asked so.
  static Channel* first_in_source(std::vector<Channel>& sends, bool with_room) {
    Channel* first = nullptr;
    for (Channel& channel : sends) {
      if (channel.done || (channel.protocol != Protocol::push && channel.protocol != Protocol::staged)) continue;
      if (first && position(channel) >= position(*first)) continue;
      if (!with_room || has_room(channel)) first = &channel;
    }
    return first;
  }

  /// Where a channel's next piece lies in the source. What stays on this rank comes after what leaves it from the same
  /// rows, which are then in the cache: it is the others that wait for this rank.
  static Index position(const Channel& channel) {
    const Index start = channel.cutter.part().source_offset;
    return channel.is_own() ? start + channel.part_count : start;
  }

  static bool has_room(Channel& channel) {
    return channel.protocol == Protocol::push || StagedProtocol::has_free_slot(channel);
  }

  /// Whether there is room for a piece and all that can be sent with it.
  static bool all_have_room(std::vector<Channel>& sends, const Channel& first) {
    if (first.protocol == Protocol::push) return true;
    return std::all_of(sends.begin(), sends.end(), [&](Channel& channel) {
      return !LevelChannels::are_level(channel, first) || StagedProtocol::has_free_slot(channel);
    });
  }

  void collect(std::vector<Channel>& sends, Channel& first) { level_.collect(sends, first, has_room); }

  void send(ExchangeState& exchange) {
    if (level_.first().protocol == Protocol::push)
      PushProtocol::send(exchange, level_);
    else
      StagedProtocol::send(exchange, level_);
  }

  LevelChannels level_;
  int slot_spins_ = 0;
};

}  // namespace dace_redist
