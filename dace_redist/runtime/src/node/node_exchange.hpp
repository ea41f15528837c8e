// What ranks of one node move between each other's memory, with one copy where an array can be seen by its partner.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "copy/copy.hpp"
#include "node/node_channel.hpp"
#include "node/remote_read.hpp"
#include "plan/description.hpp"

namespace dace_redist {

/// The messages between ranks of one node. Each pair of ranks moves its message in one of four ways, chosen anew in
/// each exchange by the sender:
///
/// - push: the target array lies in node-shared memory; the sender copies into it;
/// - pull: the source array lies in node-shared memory; the receiver copies out of it;
/// - read: the source does not, all runs are long, and the target does not either or its rank has less to copy than the
///   sender; the receiver has the kernel copy them out of the sender's memory;
/// - ring: in all other cases, or where memory cannot be mapped or read; the sender packs pieces into free slots of a
///   ring in shared memory, the receiver unpacks them while they are in the cache.
///
/// A sender goes through its source array once, from the lowest address to the highest, whatever receiver a piece is
/// for; a rank that pulls goes through its target in the same manner.
///
/// Extra memory: a ring of depth * slot_bytes for each rank it sends to, touched when it is used; less, down to one
/// slot each, where many rings would not fit the cache, and where messages are small.
class NodeExchange {
 public:
  /// This rank's messages within the node for given layouts of its partners' arrays.
  using Planner = std::function<RankSchedule(const Layouts& sources, const Layouts& targets)>;

  /// Takes over the messages and this rank's own arrays. Local; may be called again, for other arrays.
  void prepare(const Planner& planner, const LocalLayout& source, const LocalLayout& target, Index element_bytes,
               const Options& options) {
    planner_ = planner;
    source_layout_ = source;
    target_layout_ = target;
    element_bytes_ = element_bytes;
    depth_ = options.depth;
    most_piece_ = std::max<Index>(1, options.slot_bytes / element_bytes);
    replan();
  }

  std::size_t send_count() const { return sends_.size() - 1; }
  std::size_t receive_count() const { return receives_.size(); }
  int send_peer(std::size_t s) const { return sends_[s + 1].peer; }
  int receive_peer(std::size_t r) const { return receives_[r].peer; }

  /// Allocates this rank's rings. \throws Error if there is too little shared memory.
  void allocate_rings() {
    // a rank that sends to many packs for another while one unpacks; with few, it needs a second slot
    Index largest_piece = 0, most_slots = send_count() > 2 ? 1 : 2;
    for (std::size_t s = 0; s < send_count(); ++s) {
      largest_piece = std::max(largest_piece, sends_[s + 1].part_count);
      most_slots = std::max(most_slots, sends_[s + 1].sensible_slots());
    }
    rings_.allocate(send_count(), largest_piece * element_bytes_, std::min(most_slots, depth_));
    for (std::size_t s = 0; s < send_count(); ++s)
      sends_[s + 1].use(rings_.ring(s), rings_.slots(), rings_.slot_bytes());
  }
  Introduction to_receiver(std::size_t s) const { return rings_.introduction(s, source_layout_); }
  Introduction to_sender() const { return {{}, 0, 0, 0, 0, PlainStrides(target_layout_)}; }

  /// Maps the rings of the senders and takes note of the partners' layouts. \throws Error if one cannot be mapped.
  void meet(const std::vector<Introduction>& receivers, const std::vector<Introduction>& senders) {
    partner_rings_.clear();
    for (std::size_t r = 0; r < receive_count(); ++r) {
      if (!RingSegment::map(senders[r], partner_rings_.emplace_back()))
        throw Error(text("process ", senders[r].segment.process, " is not rank ", receive_peer(r),
                         ": the ranks of this node do not see each other's processes"));
      receives_[r].use(reinterpret_cast<Ring*>(partner_rings_.back().at(senders[r].ring_offset)), senders[r].ring_slots,
                       senders[r].slot_bytes);
      source_layouts_[receive_peer(r)] = senders[r].strides.layout();
    }
    for (std::size_t s = 0; s < send_count(); ++s) target_layouts_[send_peer(s)] = receivers[s].strides.layout();
    replan();
  }

  /// Begins an exchange: tells the senders that this rank's target may be written, and where it lies.
  void begin(const char* source, char* target) {
    source_ = source;
    target_ = target;
    ++exchange_;
    source_place_ = finder_.find(source);
    const SharedArrayFinder::Place target_place = finder_.find(target);
    for (Channel& channel : sends_) channel.begin();
    stream_own_ = target_place.shared ? stream_pushed_ : stream_unpacked_;
    sends_[0].way = Way::push;
    sends_[0].partner = target;
    sends_[0].done = sends_[0].cutter.done();
    for (Channel& channel : receives_) {
      channel.begin();
      channel.ring->target = {target_place, PlainStrides(target_layout_), 0, 0, sent_bytes_ + received_bytes_};
      channel.ring->entered.store(exchange_, std::memory_order_release);
    }
    undecided_ = send_count();
    left_to_copy_ = sent_bytes_;
    open_ = send_count() + receive_count() + !sends_[0].done;
    patience_ = rounds_of_patience;
    waited_ = 0;
  }

  /// Does a little of what can be done now; false if that was nothing.
  bool progress() {
    bool any = undecided_ > 0 && decide();
    if (undecided_ > 0 && patience_ > 0)
      --patience_;
    else
      any |= send_piece();
    any |= receive();
    return any;
  }

  bool finished() const { return open_ == 0; }

 private:
  // Parts of stream_threshold_bytes() from which all that is pushed or pulled, and all that is unpacked, goes past the
  // cache: what one copy brings to another rank is not wanted in this core's; what is unpacked may well be.
  static constexpr Index direct_streamed_sooner = 8, unpacked_streamed_sooner = 2;
  static constexpr int pushes_in_a_row = 16;
  static constexpr int rounds_in_step = 64;       // until a sender goes on without the slowest of its receivers
  static constexpr int rounds_of_patience = 256;  // until a sender begins though some receivers are not there yet

  /// Takes over the messages for the layouts known; rings and counters stay.
  void replan() {
    RankSchedule schedule = planner_(source_layouts_, target_layouts_);
    schedule.sends.insert(schedule.sends.begin(), std::move(schedule.self));
    set_messages(sends_, schedule.sends, true);
    set_messages(receives_, schedule.receives, false);
    compare_shapes(sends_);
    compare_shapes(receives_);
    sent_bytes_ = bytes_of(sends_);
    received_bytes_ = bytes_of(receives_);
    stream_pushed_ = sent_bytes_ >= stream_threshold_bytes() / direct_streamed_sooner;
    stream_pulled_ = received_bytes_ >= stream_threshold_bytes() / direct_streamed_sooner;
    stream_unpacked_ = received_bytes_ >= stream_threshold_bytes() / unpacked_streamed_sooner;
  }

  Index bytes_of(const std::vector<Channel>& channels) const {
    Index nbytes = 0;
    for (const Channel& channel : channels) nbytes += bytes_of(channel);
    return nbytes;
  }
  Index bytes_of(const Channel& channel) const { return channel.message.count * element_bytes_; }

  void set_messages(std::vector<Channel>& channels, std::vector<Message>& messages, bool sends) const {
    const bool first = channels.empty();
    for (std::size_t c = 0; c < messages.size(); ++c) {
      if (first) channels.emplace_back(static_cast<int>(messages[c].peer), most_piece_);
      channels[c].set(std::move(messages[c]), sends, element_bytes_);
    }
  }

  /// Chooses a way for every receiver that has come since.
  bool decide() {
    bool any = false;
    for (Channel& channel : sends_) {
      if (channel.way != Way::undecided || channel.ring->entered.load(std::memory_order_acquire) != exchange_) continue;
      learn(channel, target_layouts_, channel.ring->target.strides, true);
      choose(channel);
      --undecided_;
      any = true;
    }
    return any;
  }

  void choose(Channel& channel) {
    const Announcement& theirs = channel.ring->target;
    char* const segment = theirs.place.shared ? channel.arrays.segment(theirs.place.name) : nullptr;
    channel.partner = segment ? segment + theirs.place.offset : nullptr;
    const Way way = best_way(channel);
    Announcement& ours = channel.ring->source;
    if (way == Way::pull) ours = {source_place_, PlainStrides(source_layout_), 0, 0, 0};
    if (way == Way::read) {
      ours = {{}, PlainStrides(source_layout_), reinterpret_cast<std::uintptr_t>(source_), getpid(), 0};
      left_to_copy_ -= bytes_of(channel);
    }
    set_way(channel, way);
  }

  /// The way for a receiver into whose target this rank can write, or cannot (`channel.partner` is null).
  Way best_way(const Channel& channel) const {
    if (source_place_.shared) return channel.partner && !channel.pulls_better() ? Way::push : Way::pull;
    const bool readable = channel.shortest_run >= shortest_remote_run;
    if (channel.partner && !(readable && channel.ring->target.most_copied < left_to_copy_)) return Way::push;
    return readable ? Way::read : Way::ring;
  }

  void set_way(Channel& channel, Way way) const {
    channel.way = way;
    channel.ring->decide(exchange_, way);
  }

  /// Plans a message anew if the partner's array has other strides than in the last exchange.
  void learn(Channel& channel, Layouts& layouts, const PlainStrides& strides, bool sends) {
    LocalLayout& known = layouts[channel.peer];
    if (strides == known) return;
    known = strides.layout();
    RankSchedule schedule = planner_(source_layouts_, target_layouts_);
    for (Message& message : sends ? schedule.sends : schedule.receives)
      if (message.peer == channel.peer) channel.set(std::move(message), sends, element_bytes_);
    compare_shapes(sends ? sends_ : receives_);
  }

  /// Copies or packs the piece that lies first in the source, and those of other receivers that lie beside it. For a
  /// receiver among these without a free slot it waits a little, so that rows go on being read once for all.
  bool send_piece() {
    Channel* first = first_in_source(false);
    if (!first) return check_pulled();
    if (all_have_room(*first)) {
      waited_ = 0;
    } else {
      if (waited_ < rounds_in_step) ++waited_;
      first = waited_ < rounds_in_step ? nullptr : first_in_source(true);
      if (!first) return check_pulled();
    }
    const std::size_t count = level_channels(sends_, *first);
    send_pieces(*first, count);
    // what is pushed waits for nobody: go on before looking at all channels again
    for (int more = 1; more < pushes_in_a_row && first->way == Way::push && !first->done; ++more)
      send_pieces(*first, count);
    // what stays is copied at once, while the rows are in the cache
    if (first->ring && first_in_source(false) == &sends_[0]) send_pieces(sends_[0], level_channels(sends_, sends_[0]));
    return true;
  }

  /// The channel whose next piece lies first in the source; of those that have room for it, if asked so.
  Channel* first_in_source(bool with_room) {
    Channel* first = nullptr;
    for (Channel& channel : sends_) {
      if (channel.done || (channel.way != Way::push && channel.way != Way::ring)) continue;
      if (first && position(channel) >= position(*first)) continue;
      if (!with_room || channel.way == Way::push || channel.has_free_slot()) first = &channel;
    }
    return first;
  }

  /// Where a channel's next piece lies in the source. What stays on this rank comes after what leaves it from the same
  /// rows, which are then in the cache: it is the others that wait for this rank.
  Index position(const Channel& channel) const {
    const Index start = channel.cutter.part().source_offset;
    return channel.ring ? start : start + channel.part_count;
  }

  /// Whether there is room for a piece and all that can be sent with it.
  bool all_have_room(const Channel& first) {
    if (first.way == Way::push) return true;
    return std::all_of(sends_.begin(), sends_.end(),
                       [&](Channel& channel) { return !is_level(channel, first) || channel.has_free_slot(); });
  }

  using Channels = std::array<Channel*, most_places>;

  /// Whether the next piece of both can be copied together: equally shaped, and as far.
  static bool is_level(const Channel& channel, const Channel& first) {
    return !channel.done && channel.way == first.way && channel.shape == first.shape &&
           channel.cutter.level_with(first.cutter);
  }

  /// `first`, and the channels that are level with it and have room.
  std::size_t level_channels(std::vector<Channel>& channels, Channel& first) {
    std::size_t count = 0;
    level_[count++] = &first;
    for (Channel& channel : channels) {
      if (count == most_places) break;
      if (&channel == &first || !is_level(channel, first)) continue;
      if (first.way == Way::ring && !channel.has_free_slot()) continue;
      level_[count++] = &channel;
    }
    return count;
  }

  /// Copies or packs the next piece of the first `count` level channels.
  void send_pieces(Channel& first, std::size_t count) {
    const bool push = first.way == Way::push, own = !first.ring && count == 1;
    copy_pieces(count, !push, push && (own ? stream_own_ : stream_pushed_), [&](const Channel& channel, Index taken) {
      return CopyPlace{source_, push ? channel.partner : channel.slot() + taken * element_bytes_};
    });
    for (std::size_t c = 0; c < count; ++c) {
      Channel& channel = *level_[c];
      if (!push)
        channel.ring->written.store(++channel.total, std::memory_order_release);
      else if (channel.cutter.done() && channel.ring)
        channel.ring->finished.store(exchange_, std::memory_order_release);
      close_if_done(channel);
    }
  }

  /// Copies the next piece of the first `count` level channels, `starts(channel, taken)` being the arrays; or packs it.
  template <class Starts>
  void copy_pieces(std::size_t count, bool pack, bool stream, const Starts& starts) {
    std::array<CopyPlace, most_places> places;
    const MessageCutter& cutter = level_[0]->cutter;
    level_[0]->cutter.take(level_[0]->part_count, [&](Index taken) {
      const std::size_t group = cutter.group();
      for (std::size_t c = 0; c < count; ++c) {
        Channel& channel = *level_[c];
        const CopyPlace start = starts(channel, taken);
        const StridedBlock& part = channel.cutter.part();
        places[c] = {start.source + part.source_offset * element_bytes_,
                     start.target + (pack ? 0 : part.target_offset * element_bytes_)};
        if (cutter.several_blocks())
          (pack ? channel.packed : channel.direct)[group].runs.copy(start.source, start.target);
        if (c > 0) channel.cutter.advance();
      }
      if (cutter.several_blocks()) return;
      const Channel& first = *level_[0];
      const CopyBlock block = cutter.whole_group()
                                  ? (pack ? first.packed : first.direct)[group].block
                                  : make_copy_block(pack ? to_packed(cutter.part(), 0) : cutter.part(), element_bytes_);
      copy_together(block, places.data(), count, stream);
    });
  }

  /// Looks whether receivers have pulled what they were to pull, or cannot.
  bool check_pulled() {
    bool any = false;
    for (Channel& channel : sends_) {
      if (channel.done || (channel.way != Way::pull && channel.way != Way::read)) continue;
      if (channel.ring->refused.load(std::memory_order_acquire) == exchange_) {
        set_way(channel, channel.way == Way::read && channel.partner ? Way::push : Way::ring);
        any = true;
      } else if (channel.ring->finished.load(std::memory_order_acquire) == exchange_) {
        channel.done = true;
        --open_;
        any = true;
      }
    }
    return any;
  }

  /// Unpacks what has arrived, and pulls the piece that lies first in the target.
  bool receive() {
    bool any = false;
    Channel* first = nullptr;
    for (Channel& channel : receives_) {
      if (channel.done) continue;
      if (channel.way == Way::undecided) any |= hear(channel);
      if (channel.way == Way::ring) {
        any |= unpack_arrived(channel);
      } else if (channel.way == Way::push) {
        if (channel.ring->finished.load(std::memory_order_acquire) != exchange_) continue;
        channel.done = any = true;
        --open_;
      } else if (channel.way == Way::read) {
        read_piece(channel);
        any = true;
      } else if (channel.way == Way::pull) {
        if (!first || channel.cutter.part().target_offset < first->cutter.part().target_offset) first = &channel;
      }
    }
    if (!first) return any;
    pull_pieces(level_channels(receives_, *first));
    return true;
  }

  /// Pulls the next piece of the first `count` level channels.
  void pull_pieces(std::size_t count) {
    copy_pieces(count, false, stream_pulled_,
                [&](const Channel& channel, Index) { return CopyPlace{channel.partner, target_}; });
    for (std::size_t c = 0; c < count; ++c) {
      Channel& channel = *level_[c];
      if (channel.cutter.done()) channel.ring->finished.store(exchange_, std::memory_order_release);
      close_if_done(channel);
    }
  }

  /// Takes note of the sender's choice, once it is made.
  bool hear(Channel& channel) {
    const Way way = channel.ring->decided(exchange_);
    if (way == Way::undecided) return false;
    if (way == Way::pull || way == Way::read) {
      if (channel.ring->refused.load(std::memory_order_relaxed) == exchange_) return false;  // waits for another one
      if (!reach(channel, way)) {
        channel.ring->refused.store(exchange_, std::memory_order_release);
        return true;
      }
      learn(channel, source_layouts_, channel.ring->source.strides, false);
    }
    if (way == Way::read) channel.cutter.restart(remote_read_bytes / element_bytes_);
    channel.way = way;
    return true;
  }

  /// Whether this rank gets at the sender's array.
  static bool reach(Channel& channel, Way way) {
    const Announcement& theirs = channel.ring->source;
    if (way == Way::read) return can_read(static_cast<pid_t>(theirs.process), theirs.address);
    char* const segment = channel.arrays.segment(theirs.place.name);
    channel.partner = segment ? segment + theirs.place.offset : nullptr;
    return segment != nullptr;
  }

  /// The next piece, out of the sender's private memory; all over again through the ring if the kernel refuses.
  void read_piece(Channel& channel) {
    const Announcement& theirs = channel.ring->source;
    bool copied = true;
    channel.cutter.take(remote_read_bytes / element_bytes_, [&](Index) {
      const MessageCutter& cutter = channel.cutter;
      const CopyBlock block =
          cutter.whole_group() ? channel.direct[cutter.group()].block : make_copy_block(cutter.part(), element_bytes_);
      copied = copied && copy_from(block, static_cast<pid_t>(theirs.process), theirs.address, target_);
    });
    if (!copied) {
      channel.begin();
      channel.ring->refused.store(exchange_, std::memory_order_release);
      return;
    }
    if (channel.cutter.done()) channel.ring->finished.store(exchange_, std::memory_order_release);
    close_if_done(channel);
  }

  bool unpack_arrived(Channel& channel) {
    bool any = false;
    while (!channel.cutter.done() && channel.ring->written.load(std::memory_order_acquire) != channel.total) {
      unpack_piece(channel);
      channel.ring->read.store(++channel.total, std::memory_order_release);
      any = true;
    }
    close_if_done(channel);
    return any;
  }

  void close_if_done(Channel& channel) {
    if (!channel.cutter.done()) return;
    channel.done = true;
    --open_;
  }

  /// The next piece, from the channel's slot to the array.
  void unpack_piece(Channel& channel) const {
    MessageCutter& cutter = channel.cutter;
    const char* const bytes = channel.slot();
    cutter.take(channel.part_count, [&](Index taken) {
      const char* const from = bytes + taken * element_bytes_;
      if (cutter.several_blocks())
        channel.packed[cutter.group()].runs.copy(from, target_);
      else if (cutter.whole_group())
        copy(channel.packed[cutter.group()].block, from, target_, stream_unpacked_);
      else
        copy(make_copy_block(from_packed(cutter.part(), 0), element_bytes_), from, target_, stream_unpacked_);
    });
  }

  Channels level_{};
  Planner planner_;
  LocalLayout source_layout_, target_layout_;
  Layouts source_layouts_, target_layouts_;   // of the partners
  Index element_bytes_ = 1, most_piece_ = 1;  // the latter in elements
  Index depth_ = 1;                           // most slots per ring
  std::vector<Channel> sends_;                // the first one is what stays on this rank
  std::vector<Channel> receives_;
  Index sent_bytes_ = 0, received_bytes_ = 0;                                     // what stays on this rank is sent
  bool stream_pushed_ = false, stream_pulled_ = false, stream_unpacked_ = false;  // whether it goes past the cache
  RingSegment rings_;                                                             // of this rank's sends
  std::vector<SharedSegment> partner_rings_;
  SharedArrayFinder finder_{rings_.scratch()};

  // the exchange at hand
  std::uint64_t exchange_ = 0;
  const char* source_ = nullptr;
  char* target_ = nullptr;
  SharedArrayFinder::Place source_place_;
  bool stream_own_ = false;               // what stays on this rank
  std::size_t undecided_ = 0, open_ = 0;  // channels
  Index left_to_copy_ = 0;                // bytes sent that no receiver has been left to read
  int patience_ = 0, waited_ = 0;
};

}  // namespace dace_redist
