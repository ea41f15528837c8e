// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node_reduce.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace dace_redist {

PartialResults::PartialResults(std::vector<Channel*> channels) : channels_(std::move(channels)) {
  blocks_.reserve(channels_.size());
  next_.reserve(channels_.size());
}

Index PartialResults::target_bytes(const NodeTransfer& transfer) const {
  const Tensor& tensor = transfer.tensor(first().message.blocks.begin().tensor());
  return first().message.nbytes / tensor.steps.message_bytes() * tensor.reduction.target_bytes();
}

bool PartialResults::ready() const {
  return std::all_of(channels_.begin(), channels_.end(), [](const Channel* channel) {
    if (channel->is_self() || channel->protocol == Protocol::pull) return true;
    return channel->protocol == Protocol::staged && has_piece(*channel);
  });
}

void PartialResults::reduce_next(NodeTransfer& transfer) {
  const trace::Span span("reduce");
  reduce_piece(transfer);
  for (Channel* channel : channels_) {
    if (channel->protocol == Protocol::staged) free_slot(transfer, *channel);
    if (channel->protocol == Protocol::pull)
      transfer.finish_if_done(*channel);
    else
      transfer.close_if_done(*channel);
  }
}

void PartialResults::reduce_piece(const NodeTransfer& transfer) {
  MessageCutter& cutter = first().cutter;
  const int tensor = cutter.tensor();
  const Tensor& reduced = transfer.tensor(tensor);
  const Index target_bytes = reduced.reduction.target_bytes();
  cutter.take(first().part_bytes, [&](Index displacement) {
    const BlockGroup& group = cutter.groups()[cutter.group()];
    const std::size_t several = cutter.several_blocks() ? group.count : 1;
    StridedBlock box;
    next_.clear();
    for (const Channel* channel : channels_) next_.push_back(channel->cutter.groups()[cutter.group()].first);
    for (std::size_t b = 0; b < several; ++b) {
      blocks_.clear();
      for (std::size_t summand = 0; summand < channels_.size(); ++summand) {
        Channel& channel = *channels_[summand];
        const StridedBlock& block = several > 1 ? next_[summand].read(box) : channel.cutter.part();
        ++next_[summand];
        blocks_.push_back(partial(transfer, channel, static_cast<Index>(summand), block, displacement));
      }
      displacement += blocks_.front().block.count() * reduced.steps.message_bytes();
      reduce_blocks(blocks_, reduced.reduction.sums(), target_bytes, transfer.arrays.targets[tensor],
                    transfer.stream_unpacked);
    }
    for (std::size_t summand = 1; summand < channels_.size(); ++summand) channels_[summand]->cutter.advance();
  });
}

/// A block of a partial result. \param displacement  bytes of the piece that come before it.
PartialBlock PartialResults::partial(const NodeTransfer& transfer, const Channel& channel, Index summand,
                                     const StridedBlock& block, Index displacement) const {
  const auto tensor = static_cast<std::size_t>(channel.cutter.tensor());
  const bool packed = !channel.is_self() && channel.protocol == Protocol::staged;
  PartialBlock made = transfer.tensor(channel.cutter.tensor()).reduction.leaf(summand, packed);
  made.block = packed ? from_packed(block, 0) : block;
  made.source = packed              ? channel.slot(channel.total) + displacement
                : channel.is_self() ? transfer.arrays.sources[tensor]
                                    : channel.partner[tensor];
  return made;
}

std::vector<PartialResults> find_partial_results(Channel& self, std::vector<Channel>& receives) {
  std::map<std::pair<int, Index>, std::vector<Channel*>> parts;  // by tensor and first element in the target
  const auto add = [&parts](Channel& channel) {
    if (channel.message.blocks.empty()) return;
    const Block block = channel.message.blocks.front();
    parts[{block.tensor, block.box.target_offset}].push_back(&channel);
  };
  add(self);
  for (Channel& channel : receives) add(channel);
  std::vector<PartialResults> found;
  for (auto& [place, channels] : parts) {
    std::sort(channels.begin(), channels.end(),
              [](const Channel* a, const Channel* b) { return a->message.summand < b->message.summand; });
    found.emplace_back(std::move(channels));
  }
  return found;
}

bool reduce_next(NodeTransfer& transfer, std::vector<PartialResults>& parts) {
  PartialResults* first = nullptr;
  for (PartialResults& part : parts)
    if (!part.done() && (!first || part.position() < first->position()) && part.ready()) first = &part;
  if (first) first->reduce_next(transfer);
  return first != nullptr;
}

}  // namespace dace_redist
