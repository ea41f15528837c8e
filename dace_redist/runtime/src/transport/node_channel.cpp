// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node_channel.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <new>
#include <utility>

#include "copy/stream_threshold.hpp"

namespace dace_redist {
namespace {

/// Elements that lie without a gap on one side.
Index stretch(const StridedBlock& block, const std::array<std::int64_t, max_block_dims>& strides) {
  Index length = 1;
  for (bool longer = true; longer;) {
    longer = false;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      if (block.counts[d] > 1 && strides[d] == length) {
        length *= block.counts[d];
        longer = true;
      }
  }
  return length;
}

/// Bytes of the longest run in the sources: of one block, or of blocks that follow each other there.
Index find_max_source_run(const PeerMessage& message, const Tensors& tensors) {
  Index longest = 0, joined = 0, end = 0;
  int tensor = -1;
  for (const Block& block : message.blocks) {
    const Index element_bytes = tensors[static_cast<std::size_t>(block.tensor)]->steps.direct().source_bytes;
    const Index length = stretch(block.box, block.box.source_strides);
    if (block.tensor != std::exchange(tensor, block.tensor) || block.box.source_offset != end) joined = 0;
    joined += length;
    longest = std::max(longest, joined * element_bytes);
    if (length != block.box.count()) joined = 0;  // the next block follows the last of several stretches only
    end = block.box.source_offset + length;
  }
  return longest;
}

/// Extends the range by the elements of a block on one side.
void extend(ByteRange& range, const StridedBlock& block, Index offset,
            const std::array<std::int64_t, max_block_dims>& strides, Index element_bytes) {
  Index first = offset, last = offset;
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
    (strides[d] < 0 ? first : last) += (block.counts[d] - 1) * strides[d];
  if (range.begin == range.end) range = {first * element_bytes, first * element_bytes};
  range = {std::min(range.begin, first * element_bytes), std::max(range.end, (last + 1) * element_bytes)};
}

/// \param side  places a block in the arrays, given the elements of the group that come before it.
template <class Side>
CopyList group_copy(const BlockGroup& group, const ElementStep& step, const Side& side) {
  CopyList copies;
  Index displacement = 0;
  StridedBlock box;
  auto block = group.first;
  for (std::size_t b = 0; b < group.count; ++b, ++block) {
    copies.append(side(block.read(box), displacement), step);
    displacement += box.count();
  }
  return copies;
}

/// How the pieces of a message are staged.
struct Staging {
  Index part_bytes = 1, slots = 1, cached_slots = 1, slot_bytes = 0;
};

/// Chooses pieces and slots. The slots of all rings of a rank that ordinary stores write should stay in the cache of
/// its core beside what is copied, in half of the second level; with many receivers, pieces get shorter for that.
/// Non-temporal stores pass the cache by: with four times as many slots, the two ranks wait less for each other.
Staging staging_of(Index nbytes, Index max_element_bytes, const NodeTraffic& traffic, const Options& options) {
  constexpr Index streamed_rings = 4;
  const Index max_part = options.slot_bytes, quarter = ceil_div(max_part, 4);
  const Index receivers = traffic.receivers;
  const Index ring_bytes = stream_threshold_bytes() / 8 / std::max<Index>(1, receivers);
  Staging made;
  if (nbytes <= std::min(max_eager_bytes, max_part)) {
    made.part_bytes = std::max<Index>(nbytes, 1);
  } else if (traffic.both_ways && receivers <= many_receivers && nbytes <= max_part) {
    made.part_bytes = nbytes;  // the receiver packs meanwhile
  } else if (traffic.in_order || receivers <= many_receivers) {
    made.part_bytes = std::clamp(ceil_div(nbytes, 2), quarter, max_part);  // so that sender and receiver overlap
  } else {
    const Index fair = std::max(min_many_part_bytes, quarter * many_receivers / receivers);
    const Index most = std::min(std::max(fair, ring_bytes), max_part);
    made.part_bytes = std::clamp(ceil_div(nbytes, 2), std::min(fair, quarter), most);
  }
  made.part_bytes = std::min(made.part_bytes, std::max<Index>(nbytes, 1));
  made.slot_bytes = whole_lines(std::max(made.part_bytes, max_element_bytes));
  // slots for half of the message: with fewer, the two ranks wait for each other after every piece. A rank that sends
  // to many packs for another one while one unpacks; with few receivers it needs a second slot.
  const Index wanted = std::max<Index>(ceil_div(nbytes, 2 * made.part_bytes), receivers > 2 ? 1 : 2);
  const bool eager = nbytes <= max_eager_bytes;
  const Index max_slots = std::min(eager ? 2 : wanted, std::max<Index>(1, options.depth));
  made.cached_slots = std::clamp<Index>(ring_bytes / made.slot_bytes, 1, max_slots);
  made.slots =
      eager ? made.cached_slots : std::clamp<Index>(streamed_rings * ring_bytes / made.slot_bytes, 1, max_slots);
  return made;
}

/// Rounds up, so that a plan gets the pages of one that was freed: new ones take longer than all else in making a plan.
/// Those that are never used are not committed.
Index size_class(Index nbytes) {
  constexpr Index max_unit = 1 << 20;
  Index unit = 4096;
  while (unit < max_unit && 2 * unit < nbytes) unit *= 2;
  return round_up(nbytes, unit);
}

/// Start of the memory of a plan.
struct ChannelDirectory {
  std::int64_t count;
  // followed by the offset of each ChannelState from here on
  std::int64_t* offsets() { return reinterpret_cast<std::int64_t*>(this + 1); }
};

}  // namespace

void SharedArray::set(const void* array, const LocalLayout& layout, const Arena* arena) {
  offset = !array ? 0 : arena ? arena->offset_of(array) : -1;  // of null nothing moves
  address = reinterpret_cast<std::uintptr_t>(array);
  ndim = static_cast<Index>(layout.strides.size());
  std::copy(layout.strides.begin(), layout.strides.end(), strides.begin());
}

bool SharedArray::has_layout(const LocalLayout& layout) const {
  return layout.strides.size() == static_cast<std::size_t>(ndim) &&
         std::equal(layout.strides.begin(), layout.strides.end(), strides.begin());
}

Channel::Channel(PeerMessage new_message, const Tensors& tensors, bool sends, Index new_part_bytes)
    : PlannedMessage{new_message, new_part_bytes, MessageCutter(new_message, tensors, new_part_bytes)} {
  set(std::move(new_message), tensors, sends);
}

void Channel::set(PeerMessage new_message, const Tensors& tensors, bool sends) {
  constexpr Index timed_part = 512;      // of the streaming threshold: stores of shorter messages make no difference
  constexpr Index max_tiny_bytes = 512;  // longer blocks are copied for several receivers at once
  message = std::move(new_message);
  cutter = MessageCutter(message, tensors, part_bytes, max_tiny_bytes);
  partner.assign(tensors.size(), nullptr);
  mapped.assign(tensors.size(), nullptr);
  reach.assign(tensors.size(), {});
  for (const Block& block : message.blocks) {
    const auto t = static_cast<std::size_t>(block.tensor);
    const ElementStep& step = tensors[t]->steps.direct();
    if (sends)
      extend(reach[t], block.box, block.box.target_offset, block.box.target_strides, step.target_bytes);
    else
      extend(reach[t], block.box, block.box.source_offset, block.box.source_strides, step.source_bytes);
  }
  direct.clear();
  packed.clear();
  if (sends && !message.blocks.empty()) {
    max_source_run = find_max_source_run(message, tensors);
    const StridedBlock first = message.blocks.front().box;
    pulls_better = stretch(first, first.source_strides) > stretch(first, first.target_strides);
  }
  min_run = std::numeric_limits<Index>::max();
  for (const BlockGroup& group : cutter.groups()) {
    const ElementSteps& steps = tensors[static_cast<std::size_t>(group.tensor)]->steps;
    direct.push_back(group_copy(group, steps.direct(), [](const StridedBlock& block, Index) { return block; }));
    packed.push_back(group_copy(group, sends ? steps.pack() : steps.unpack(), sends ? to_packed : from_packed));
    const std::vector<CopyBlock>& blocks = direct.back().blocks();
    min_run = std::min(min_run, group.count == 1 && blocks.size() == 1 ? blocks[0].run_bytes : 0);
  }
  may_read = min_run >= min_tried_run && !are_partial(tensors);  // partial results are staged
  timed = message.nbytes > max_eager_bytes && (may_read || message.nbytes >= stream_threshold_bytes() / timed_part);
}

void Channel::begin() {
  protocol = eager() ? Protocol::staged : Protocol::undecided;
  done = cutter.groups().empty();
  streams = false;
  cutter.restart(part_bytes);
}

void Channel::decide(Protocol new_protocol, bool new_streams, std::uint64_t transfer) {
  protocol = new_protocol;
  streams = new_streams && protocol == Protocol::staged;
  slots = streams ? state->slots : state->cached_slots;
  handshake->slots = slots;
  handshake->decision.store(transfer * ChannelState::protocols + static_cast<std::uint64_t>(protocol),
                            std::memory_order_release);
}

bool Channel::address_partner(const SharedArray* arrays) {
  for (std::size_t t = 0; t < partner.size(); ++t) {
    const auto [begin, end] = reach[t];
    if (arrays[t].offset >= 0) {
      partner[t] = arena->at(arrays[t].offset);
    } else if (begin < end) {
      mapped[t] = arena->map(arrays[t].address + static_cast<std::uintptr_t>(begin), end - begin);
      if (!mapped[t]) return false;
      partner[t] = mapped[t].get() - begin;
    }
  }
  return true;
}

bool Channel::can_read(const SharedArray* arrays) const {
  const auto tensor = static_cast<std::size_t>(message.blocks.begin().tensor());
  return arena->can_read(arrays[tensor].address + static_cast<std::uintptr_t>(reach[tensor].begin));
}

void compare_shapes(std::vector<Channel>& channels) {
  std::map<std::pair<Index, std::vector<std::int64_t>>, std::size_t> first;  // channel of each shape
  for (std::size_t c = 0; c < channels.size(); ++c)
    channels[c].shape = first.insert({{channels[c].part_bytes, channels[c].message.blocks.shape()}, c}).first->second;
}

Index self_part_bytes(Index nbytes, const NodeTraffic& traffic, const Options& options) {
  return staging_of(nbytes, 1, traffic, options).part_bytes;
}

ChannelMemory::ChannelMemory(const Link& link, const std::vector<PeerMessage>& sends, const NodeTraffic& traffic)
    : context_(link.context.number()), plan_(link.plan) {
  sweep_deferred();
  if (sends.empty()) return;
  Index max_element_bytes = 1;
  for (const auto& tensor : link.tensors)
    max_element_bytes = std::max(max_element_bytes, tensor->steps.message_bytes());
  const Index receivers = traffic.receivers;
  const Index handshake_bytes =
      whole_lines(static_cast<Index>(sizeof(Handshake) + 2 * link.tensors.size() * sizeof(SharedArray)));
  Index nbytes =
      whole_lines(static_cast<Index>(sizeof(ChannelDirectory)) + receivers * static_cast<Index>(sizeof(Index)));
  std::vector<Index> offsets;
  std::vector<Staging> stagings;
  for (const PeerMessage& message : sends) {
    stagings.push_back(staging_of(message.nbytes, max_element_bytes, traffic, link.options));
    offsets.push_back(nbytes);
    nbytes += static_cast<Index>(sizeof(ChannelState)) + stagings.back().slots * stagings.back().slot_bytes;
    if (message.nbytes > max_eager_bytes) nbytes += handshake_bytes;
  }
  memory_ = Arena::allocate(size_class(nbytes), false).bytes;
  auto* const directory = new (memory_) ChannelDirectory{receivers};
  std::copy(offsets.begin(), offsets.end(), directory->offsets());
  for (std::size_t s = 0; s < sends.size(); ++s) {
    auto* const state = new (memory_ + offsets[s]) ChannelState{};
    state->receiver = sends[s].peer;
    state->slots = stagings[s].slots;
    state->cached_slots = stagings[s].cached_slots;
    state->slot_bytes = stagings[s].slot_bytes;
    state->part_bytes = stagings[s].part_bytes;
    state->ring_offset = sizeof(ChannelState);
    if (sends[s].nbytes > max_eager_bytes) {
      state->handshake_offset = std::exchange(state->ring_offset, state->ring_offset + handshake_bytes);
      new (memory_ + offsets[s] + state->handshake_offset) Handshake{};
    }
    states_.push_back(state);
  }
  Arena& arena = Arena::own();
  try {
    arena.publish(context_, plan_, arena.offset_of(memory_), static_cast<int>(receivers));
  } catch (...) {
    Arena::free(memory_);
    throw;
  }
}

ChannelMemory::~ChannelMemory() {
  if (!memory_) return;
  if (!published_for_good_) {
    Arena::own().withdraw(context_, plan_);
    Arena::free(memory_);
    return;
  }
  free_when(memory_, [states = std::move(states_)] {
    return std::all_of(states.begin(), states.end(),
                       [](const ChannelState* state) { return state->released.load(std::memory_order_acquire) != 0; });
  });
}

ChannelState* ChannelMemory::find(const Link& link, PeerArena& arena, int receiver) {
  char* const memory = arena.at(find_published(arena.head(), link.context.number(), link.plan));
  auto* const directory = reinterpret_cast<ChannelDirectory*>(memory);
  for (std::int64_t c = 0; c < directory->count; ++c) {
    auto* const state = reinterpret_cast<ChannelState*>(memory + directory->offsets()[c]);
    if (state->receiver == receiver) return state;
  }
  throw Error(text("internal error: no message from process ", arena.head().name.process, " to rank ", receiver));
}

}  // namespace dace_redist
