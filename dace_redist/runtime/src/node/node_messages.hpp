// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A rank's messages within its node, planned for the layouts of its own and its partners' arrays.

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "node/channel.hpp"
#include "plan/options.hpp"

namespace dace_redist {

/// The channels of a rank. Their rings and counters stay when the messages are planned anew.
class NodeMessages {
 public:
  /// This rank's messages within the node for given layouts of its partners' arrays.
  using Planner = std::function<RankSchedule(const Layouts& sources, const Layouts& targets)>;

  /// Takes over the messages and this rank's own arrays. Local; may be called again, for other arrays.
  void prepare(const Planner& planner, const LocalLayout& source, const LocalLayout& target, const ElementSteps& steps,
               const Options& options) {
    planner_ = planner;
    source_layout_ = source;
    target_layout_ = target;
    steps_ = &steps;
    most_piece_ = std::max<Index>(1, options.slot_bytes / steps.message_bytes());
    replan();
  }

  /// Plans all messages for the layouts known.
  void replan() {
    RankSchedule schedule = planner_(source_layouts_, target_layouts_);
    schedule.sends.insert(schedule.sends.begin(), std::move(schedule.self));
    set_messages(sends_, schedule.sends, true);
    set_messages(receives_, schedule.receives, false);
    compare_shapes(sends_);
    compare_shapes(receives_);
    sent_bytes_ = bytes_of(sends_);
    received_bytes_ = bytes_of(receives_);
  }

  /// Records the layouts of the arrays that a message comes from and goes to at other ranks; takes effect in replan().
  void set_source_layout(Index rank, const LocalLayout& layout) { source_layouts_[rank] = layout; }
  void set_target_layout(Index rank, const LocalLayout& layout) { target_layouts_[rank] = layout; }

  /// Plans a sent message anew if its receiver's target has other strides than in the last exchange.
  void update_target(Channel& channel, const PlainStrides& strides) {
    LocalLayout& known = target_layouts_[channel.peer];
    if (strides == known) return;
    known = strides.layout();
    replan_one(channel, true);
  }

  /// Plans a received message anew if its sender's source has other strides than in the last exchange.
  void update_source(Channel& channel, const PlainStrides& strides) {
    LocalLayout& known = source_layouts_[channel.peer];
    if (strides == known) return;
    known = strides.layout();
    replan_one(channel, false);
  }

  std::vector<Channel>& sends() { return sends_; }  ///< the first one is what stays on this rank
  std::vector<Channel>& receives() { return receives_; }
  const std::vector<Channel>& sends() const { return sends_; }
  const std::vector<Channel>& receives() const { return receives_; }
  const LocalLayout& source_layout() const { return source_layout_; }
  const LocalLayout& target_layout() const { return target_layout_; }
  /// Bytes of an element in a message.
  Index message_element_bytes() const { return steps_->message_bytes(); }
  Index sent_bytes() const { return sent_bytes_; }  ///< with what stays on this rank
  Index received_bytes() const { return received_bytes_; }
  Index bytes_of(const Channel& channel) const { return channel.message.count * message_element_bytes(); }

 private:
  Index bytes_of(const std::vector<Channel>& channels) const {
    Index nbytes = 0;
    for (const Channel& channel : channels) nbytes += bytes_of(channel);
    return nbytes;
  }

  void set_messages(std::vector<Channel>& channels, std::vector<Message>& messages, bool sends) const {
    const bool first = channels.empty();
    for (std::size_t c = 0; c < messages.size(); ++c) {
      if (first) channels.emplace_back(static_cast<int>(messages[c].peer), most_piece_);
      channels[c].set(std::move(messages[c]), sends, *steps_);
    }
  }

  void replan_one(Channel& channel, bool sends) {
    RankSchedule schedule = planner_(source_layouts_, target_layouts_);
    for (Message& message : sends ? schedule.sends : schedule.receives)
      if (message.peer == channel.peer) channel.set(std::move(message), sends, *steps_);
    compare_shapes(sends ? sends_ : receives_);
  }

  Planner planner_;
  LocalLayout source_layout_, target_layout_;
  Layouts source_layouts_, target_layouts_;  // of the partners
  const ElementSteps* steps_ = nullptr;
  Index most_piece_ = 1;  // elements
  std::vector<Channel> sends_, receives_;
  Index sent_bytes_ = 0, received_bytes_ = 0;
};

}  // namespace dace_redist
