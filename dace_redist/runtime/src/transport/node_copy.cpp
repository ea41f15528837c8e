// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node_copy.hpp"

#include <algorithm>

namespace dace_redist {
namespace {

/// Whether the next piece is copied by the list of its group, and not as a block or a part of one.
bool is_listed(const MessageCutter& cutter, const CopyList& group) {
  return cutter.several_blocks() || (cutter.whole_group() && group.blocks().empty() && group.element_blocks().empty());
}

/// Between which of two places a piece moves: two arrays, an array and a slot, or a slot and an array. In a slot,
/// blocks follow each other.
enum class Way { direct, pack, unpack };

/// Copies the next piece of each channel of a batch, and moves their cutters behind it.
/// \param arrays_of  `arrays_of(channel, tensor, displacement)`: starts of the source and the target of a channel; of a
///                   slot, of its part from `displacement` on.
template <Way way, class ArraysOf>
void copy_pieces(const NodeTransfer& transfer, const CopyBatch& batch, bool stream, const ArraysOf& arrays_of) {
  std::array<CopyEndpoints, max_batch> places;
  Channel& first = batch.first();
  const MessageCutter& cutter = first.cutter;
  first.cutter.take(first.part_bytes, [&](Index displacement) {
    const int tensor = cutter.tensor();
    const ElementSteps& steps = transfer.tensor(tensor).steps;
    const ElementStep& step = way == Way::pack ? steps.pack() : way == Way::unpack ? steps.unpack() : steps.direct();
    const auto group_of = [group = cutter.group()](const Channel& channel) -> const CopyList& {
      return (way == Way::direct ? channel.direct : channel.packed)[group];
    };
    const CopyList& whole = group_of(first);
    const bool listed = is_listed(cutter, whole);
    for (std::size_t c = 0; c < batch.count(); ++c) {
      Channel& channel = batch[c];
      const CopyEndpoints start = arrays_of(channel, static_cast<std::size_t>(tensor), displacement);
      const StridedBlock& part = channel.cutter.part();
      places[c] = {start.source + (way == Way::unpack ? 0 : part.source_offset * step.source_bytes),
                   start.target + (way == Way::pack ? 0 : part.target_offset * step.target_bytes)};
      if (listed) copy_threaded(group_of(channel), start.source, start.target, transfer.threads);
      if (c > 0) channel.cutter.advance();
    }
    if (listed) return;
    const auto part = [&] {
      return way == Way::pack     ? to_packed(cutter.part(), 0)
             : way == Way::unpack ? from_packed(cutter.part(), 0)
                                  : cutter.part();
    };
    if (step.kernel)
      step.kernel->apply_batch(cutter.whole_group() ? whole.element_blocks().front()
                                                    : make_element_block(part(), step.source_bytes, step.target_bytes),
                               places.data(), batch.count(), stream, way == Way::pack);
    else
      copy_batch(cutter.whole_group() ? whole.blocks().front() : make_copy_block(part(), step.source_bytes),
                 places.data(), batch.count(), stream, transfer.threads);
  });
}

/// Where the next piece of a channel lies in the sources, in elements. The self copy of a row comes after the messages
/// of that row, which is in the cache then: partners wait for messages.
Index position(const Channel& channel) {
  constexpr int tensor_shift = 48;
  const MessageCutter& cutter = channel.cutter;
  const Index start = cutter.part().source_offset + (static_cast<Index>(cutter.tensor()) << tensor_shift);
  return channel.is_self() ? start + channel.part_bytes / cutter.element_bytes() : start;
}

bool has_room(Channel& channel) { return channel.protocol == Protocol::push || has_free_slot(channel); }

/// The channel whose next piece lies first in the source; with room for it, if asked so.
Channel* first_in_source(std::vector<Channel>& sends, bool with_room) {
  Channel* first = nullptr;
  for (Channel& channel : sends) {
    if (channel.done || (channel.protocol != Protocol::push && channel.protocol != Protocol::staged)) continue;
    if (first && position(channel) >= position(*first)) continue;
    if (!with_room || has_room(channel)) first = &channel;
  }
  return first;
}

/// Whether there is room for a piece and all that can be sent with it.
bool all_have_room(std::vector<Channel>& sends, const Channel& first) {
  if (first.protocol == Protocol::push) return true;
  return std::all_of(sends.begin(), sends.end(),
                     [&](Channel& channel) { return !CopyBatch::can_batch(channel, first) || has_free_slot(channel); });
}

}  // namespace

void push(NodeTransfer& transfer, const CopyBatch& batch) {
  const bool self = batch.first().is_self() && batch.count() == 1;
  const trace::Span span(self ? "copy" : "push", batch.first().message.peer);
  copy_pieces<Way::direct>(transfer, batch, self ? transfer.stream_self : transfer.stream_pushed,
                           [&](const Channel& channel, std::size_t tensor, Index) {
                             return CopyEndpoints{transfer.arrays.sources[tensor], channel.partner[tensor]};
                           });
  for (Channel* channel : batch) transfer.finish_if_done(*channel);
}

void pull(NodeTransfer& transfer, const CopyBatch& batch) {
  const trace::Span span("pull", batch.first().message.peer);
  copy_pieces<Way::direct>(transfer, batch, transfer.stream_pulled,
                           [&](const Channel& channel, std::size_t tensor, Index) {
                             return CopyEndpoints{channel.partner[tensor], transfer.arrays.targets[tensor]};
                           });
  for (Channel* channel : batch) transfer.finish_if_done(*channel);
}

void pack(NodeTransfer& transfer, const CopyBatch& batch) {
  const trace::Span span("pack", batch.first().message.peer);
  copy_pieces<Way::pack>(
      transfer, batch, batch.first().streams, [&](const Channel& channel, std::size_t tensor, Index displacement) {
        return CopyEndpoints{transfer.arrays.sources[tensor], channel.slot(channel.total) + displacement};
      });
  for (Channel* channel : batch) {
    channel->state->written.store(++channel->total, std::memory_order_release);
    transfer.tell(*channel);
    transfer.close_if_done(*channel);
  }
}

bool unpack(NodeTransfer& transfer, Channel& channel) {
  bool any = false;
  while (!channel.cutter.done() && has_piece(channel)) {
    CopyBatch batch;
    batch.only(channel);
    const trace::Span span("unpack", channel.message.peer);
    copy_pieces<Way::unpack>(
        transfer, batch, transfer.stream_unpacked, [&](const Channel& one, std::size_t tensor, Index displacement) {
          return CopyEndpoints{one.slot(one.total) + displacement, transfer.arrays.targets[tensor]};
        });
    free_slot(transfer, channel);
    any = true;
  }
  transfer.close_if_done(channel);
  return any;
}

bool read(NodeTransfer& transfer, Channel& channel) {
  const trace::Span span("read", channel.message.peer);
  const SharedArray* const sources = channel.handshake->sources(transfer.tensors->size());
  MessageCutter& cutter = channel.cutter;
  bool copied = true;
  cutter.take(read_bytes, [&](Index) {
    const auto tensor = static_cast<std::size_t>(cutter.tensor());
    const Index element_bytes = transfer.tensor(cutter.tensor()).steps.message_bytes();
    const CopyBlock block = cutter.whole_group() ? channel.direct[cutter.group()].blocks().front()
                                                 : make_copy_block(cutter.part(), element_bytes);
    copied = copied && channel.arena->read(block, sources[tensor].address, transfer.arrays.targets[tensor]);
  });
  if (copied) transfer.finish_if_done(channel);
  return copied;
}

bool has_free_slot(Channel& channel) {
  const auto slots = static_cast<std::uint64_t>(channel.slots);
  if (channel.total - channel.read_seen < slots) return true;  // the partner's counter is loaded only when it must be
  channel.read_seen = channel.state->read.load(std::memory_order_acquire);
  return channel.total - channel.read_seen < slots;
}

bool has_piece(const Channel& channel) {
  return channel.state->written.load(std::memory_order_acquire) != channel.total;
}

void free_slot(NodeTransfer& transfer, Channel& channel) {
  const bool was_full = channel.state->written.load(std::memory_order_relaxed) - channel.total ==
                        static_cast<std::uint64_t>(channel.slots);
  channel.state->read.store(++channel.total, std::memory_order_release);
  if (was_full || !channel.eager()) transfer.tell(channel);  // else the sender does not wait for it
}

bool SendScheduler::send_piece(NodeTransfer& transfer, std::vector<Channel>& sends) {
  constexpr int pushes_in_a_row = 16;
  constexpr int max_full_ring_polls = 64;  // until a sender goes on without the slowest of its receivers
  Channel* first = first_in_source(sends, false);
  if (!first) return false;
  if (all_have_room(sends, *first)) {
    full_ring_polls_ = 0;
  } else {
    if (full_ring_polls_ < max_full_ring_polls) ++full_ring_polls_;
    first = full_ring_polls_ < max_full_ring_polls ? nullptr : first_in_source(sends, true);
    if (!first) return false;
  }
  send(transfer, sends, *first);
  // a push waits for nobody: go on before looking at all channels again
  for (int more = 1; more < pushes_in_a_row && first->protocol == Protocol::push && !first->done; ++more)
    push(transfer, batch_);
  // the self copy of these rows, while they are in the cache
  if (!first->is_self() && first_in_source(sends, false) == &sends[0]) send(transfer, sends, sends[0]);
  return true;
}

void SendScheduler::send(NodeTransfer& transfer, std::vector<Channel>& sends, Channel& first) {
  batch_.collect(sends, first, has_room);
  if (first.protocol == Protocol::push)
    push(transfer, batch_);
  else
    pack(transfer, batch_);
}

}  // namespace dace_redist
