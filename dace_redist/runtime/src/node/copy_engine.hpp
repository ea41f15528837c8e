// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Copies the next pieces of several messages together, so that source lines that they share are read once.

#include <array>
#include <cstddef>
#include <vector>

#include "node/channel.hpp"

namespace dace_redist {

/// Channels whose next pieces are copied together: moved by the same protocol, with the same stores, equally shaped,
/// and equally far. Two channels like that are level.
class LevelChannels {
 public:
  static bool are_level(const Channel& channel, const Channel& first) {
    return !channel.done && channel.protocol == first.protocol && channel.streams == first.streams &&
           channel.shape == first.shape && channel.cutter.level_with(first.cutter);
  }

  /// Takes `first`, and those of the channels that are level with it and ready, as many as can be copied together.
  /// \param ready  whether a channel that is level may be taken.
  template <class Ready>
  void collect(std::vector<Channel>& channels, Channel& first, const Ready& ready) {
    only(first);
    for (Channel& channel : channels) {
      if (count_ == max_batch) break;
      if (&channel != &first && are_level(channel, first) && ready(channel)) channels_[count_++] = &channel;
    }
  }

  /// Takes one channel alone.
  void only(Channel& channel) {
    channels_[0] = &channel;
    count_ = 1;
  }

  /// The time that is spent on them; of several channels the first is named.
  trace::Span span(const char* kind) const { return trace::Span(kind, first().peer); }

  std::size_t count() const { return count_; }
  Channel& first() const { return *channels_[0]; }
  Channel& operator[](std::size_t index) const { return *channels_[index]; }
  Channel* const* begin() const { return channels_.data(); }
  Channel* const* end() const { return channels_.data() + count_; }

 private:
  std::array<Channel*, max_batch> channels_{};
  std::size_t count_ = 0;
};

/// Copies the next piece of each of the level channels, and leaves their cutters behind it.
/// \param step   what happens to the elements.
/// \param pack    whether the target is a staging slot, in which the blocks follow each other.
/// \param stream  whether to write with non-temporal stores.
/// \param starts  `starts(channel, taken)`: starts of a channel's source and target array; when packing, of its source
///                array and of the free part of its slot after `taken` elements.
/// \return elements of a piece.
template <class Starts>
Index copy_pieces(const LevelChannels& level, const ElementStep& step, bool pack, bool stream, const Starts& starts) {
  std::array<CopyEndpoints, max_batch> places;
  Channel& first = level.first();
  const MessageCutter& cutter = first.cutter;
  return first.cutter.take(first.part_count, [&](Index taken) {
    const std::size_t group = cutter.group();
    for (std::size_t c = 0; c < level.count(); ++c) {
      Channel& channel = level[c];
      const CopyEndpoints start = starts(channel, taken);
      const StridedBlock& part = channel.cutter.part();
      places[c] = {start.source + part.source_offset * step.source_bytes,
                   start.target + (pack ? 0 : part.target_offset * step.target_bytes)};
      if (cutter.several_blocks()) {
        const GroupCopy& copies = (pack ? channel.packed : channel.direct)[group];
        for (const ElementBlock& block : copies.elements) step.kernel->apply(block, start.source, start.target, stream);
        copies.runs.copy(start.source, start.target);
      }
      if (c > 0) channel.cutter.advance();
    }
    if (cutter.several_blocks()) return;
    const GroupCopy& whole = (pack ? first.packed : first.direct)[group];
    const auto part = [&] { return pack ? to_packed(cutter.part(), 0) : cutter.part(); };
    if (step.kernel)
      step.kernel->apply_batch(cutter.whole_group() ? whole.elements.front()
                                                    : make_element_block(part(), step.source_bytes, step.target_bytes),
                               places.data(), level.count(), stream, pack);
    else
      copy_batch(cutter.whole_group() ? whole.block : make_copy_block(part(), step.source_bytes), places.data(),
                 level.count(), stream);
  });
}

}  // namespace dace_redist
