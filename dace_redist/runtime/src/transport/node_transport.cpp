// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/machine.hpp"
#include "transport/node_reduce.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

/// The copies of a message that can be made: by the sender into the target, and by the receiver out of the source where
/// it maps that, or by the kernel.
struct Reach {
  bool push, pull, read;
};

/// Runs the protocols of all messages of a rank within its node. See make_node() for the protocols, and
/// node_channel.hpp for the states of a message.
class NodeTransport final : public Transport {
 public:
  NodeTransport(const Link& link, Messages messages)
      : link_(link), reduces_(are_partial(link.tensors)), to_receive_(std::move(messages.receives)) {
    source_layouts_.resize(link.tensors.size());
    target_layouts_.resize(link.tensors.size());
    transfer_.tensors = &link.tensors;
    transfer_.threads = link.threads();
    const NodeTraffic traffic{static_cast<Index>(messages.sends.size()), reduces_,
                              !reduces_ && 2 * bytes_of(to_receive_) >= bytes_of(messages.sends)};
    try {
      memory_.emplace(link, messages.sends, traffic);
    } catch (const Error& error) {
      throw NoSharedMemory(error.what());
    }
    sends_.reserve(messages.sends.size() + 1);  // reduced_ points to channels
    receives_.reserve(to_receive_.size());
    const Index self_part = self_part_bytes(messages.self.nbytes, traffic, link.options);
    sends_.emplace_back(std::move(messages.self), link.tensors, true, self_part);
    for (std::size_t s = 0; s < messages.sends.size(); ++s)
      add_channel(std::move(messages.sends[s]), true, memory_->state(s));
  }

  ~NodeTransport() override {
    for (const Channel& channel : receives_)
      if (channel.state) channel.state->released.store(1, std::memory_order_release);
  }

  /// Pieces are cut as the sender of the message has chosen.
  void connect() override {
    memory_->keep_published();
    for (PeerMessage& message : to_receive_) {
      PeerArena& arena = *link_.context.arena_of(message.peer);
      add_channel(std::move(message), false, ChannelMemory::find(link_, arena, link_.rank()));
    }
    to_receive_ = {};
    ready_.reserve(std::max(sends_.size(), receives_.size()));
    choose_stores();
  }

  /// Messages planned for partners' arrays in C order are not taken over: these may have other strides.
  void replan(Messages) override {
    Messages planned = link_.plan_messages(source_layouts_, target_layouts_);
    sends_[0].set(std::move(planned.self), link_.tensors, true);
    for (std::size_t s = 0; s < planned.sends.size(); ++s)
      sends_[s + 1].set(std::move(planned.sends[s]), link_.tensors, true);
    for (std::size_t r = 0; r < planned.receives.size(); ++r)
      receives_[r].set(std::move(planned.receives[r]), link_.tensors, false);
    choose_stores();
  }

  void begin(const Arrays& arrays, Pace) override {
    const Arena* const arena = Arena::made();
    const auto shared = [arena](const void* array) { return !array || (arena && arena->offset_of(array) >= 0); };
    transfer_.begin(arrays);
    begin_copies();
    bool targets_shared = true;
    transfer_.sources_shared = true;
    for (std::size_t t = 0; t < link_.tensors.size(); ++t) {
      transfer_.sources_shared = transfer_.sources_shared && shared(arrays.sources[t]);
      targets_shared = targets_shared && shared(arrays.targets[t]);
    }
    if (targets_shared || transfer_.sources_shared) stores_.begin(transfer_.stay.begun, transfer_.last_stay);
    transfer_.stream_pushed = stores_.streams(sent_bytes_);
    transfer_.stream_pulled = stores_.streams(received_bytes_);
    transfer_.stream_self = targets_shared ? transfer_.stream_pushed : stream_self_private_;
    for (Channel& channel : sends_) channel.begin();
    for (Channel& channel : receives_) channel.begin();
    Channel& self = sends_[0];
    self.protocol = Protocol::push;
    std::copy_n(arrays.targets, link_.tensors.size(), self.partner.begin());
    advertise_targets();
    undecided_ = 0;
    for (std::size_t s = 1; s < sends_.size(); ++s) undecided_ += !sends_[s].eager();
    bytes_not_delegated_ = sent_bytes_;
    waits_left_ = max_waits_for_receivers;
    transfer_.open = sends_.size() - 1 + receives_.size() + !self.done;
    if (reduces_) self.done = true;  // it is reduced with what is received, not sent
    scheduler_.begin();
  }

  bool progress() override {
    bool any = decide_all();
    give_up(sends_, true);
    if (undecided_ > 0 && waits_left_ > 0)
      --waits_left_;
    else
      any |= scheduler_.send_piece(transfer_, sends_) || check_receivers();
    any |= accept();
    give_up(receives_, false);
    if (!reduces_)
      any |= receive();
    else if (!gave_up_)
      any |= reduce_next(transfer_, reduced_);
    ring_told();
    return any;
  }

  bool done() const override { return transfer_.open == 0; }
  /// Waits for partners that copy to or from its arrays: they look for ranks that have left between two pieces.
  Leaving leave() override {
    for (const Channel& channel : sends_)
      if (channel.state) channel.state->sender_left.store(1, std::memory_order_release);
    for (const Channel& channel : receives_) channel.state->receiver_left.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before a sender's decision is looked for
    const auto is_used = [this](const Channel& channel, bool sends) {
      if (channel.done || !channel.handshake) return false;
      const Handshake& handshake = *channel.handshake;
      const Protocol protocol = handshake.decided(transfer_.number);
      const bool partner_copies =
          sends ? protocol == Protocol::pull || protocol == Protocol::read : protocol == Protocol::push;
      return partner_copies && handshake.finished.load(std::memory_order_acquire) != transfer_.number &&
             partner_left(channel, sends).load(std::memory_order_acquire) == 0;
    };
    const bool lends =
        std::any_of(sends_.begin(), sends_.end(), [&](const Channel& channel) { return is_used(channel, true); }) ||
        std::any_of(receives_.begin(), receives_.end(),
                    [&](const Channel& channel) { return is_used(channel, false); });
    return lends ? Leaving::lending : Leaving::left;
  }
  /// The memory of a plan is kept until all of its ranks have freed theirs.
  bool at_rest() const override { return true; }

  bool runs_without_mpi() const override { return true; }
  void wake_partners() override {
    for (std::vector<Channel>* channels : {&sends_, &receives_})
      for (Channel& channel : *channels)
        if (!channel.done && channel.arena) ring(channel.arena->head().service);
  }

  /// Where only eager messages are left to receive, nothing has to be done before all have arrived.
  std::uint32_t awaited_rings() const override {
    const auto is_done = [](const Channel& channel) { return channel.done; };
    if (!std::all_of(sends_.begin(), sends_.end(), is_done)) return 1;
    std::uint32_t awaited = 0;
    for (const Channel& channel : receives_) {
      if (!channel.done && !channel.eager()) return 1;
      awaited += !channel.done;
    }
    return std::max<std::uint32_t>(1, awaited);
  }

 private:
  /// Wakes partners that sleep although something was stored for them.
  void ring_told() {
    if (!std::exchange(transfer_.tells, false)) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (std::vector<Channel>* channels : {&sends_, &receives_})
      for (Channel& channel : *channels)
        if (std::exchange(channel.told, false) && channel.arena) ring(channel.arena->head().waiting);
  }

  // Parts of stream_threshold_bytes(): of a source from which on its lines do not stay in the cache, and of what is
  // unpacked from which on stores are non-temporal.
  static constexpr Index large_source_divisor = 8, unpack_stream_divisor = 2;
  static constexpr int max_waits_for_receivers = 256;

  void add_channel(PeerMessage message, bool sends, ChannelState* state) {
    Channel& channel =
        (sends ? sends_ : receives_).emplace_back(std::move(message), link_.tensors, sends, state->part_bytes);
    auto* const bytes = reinterpret_cast<char*>(state);
    channel.state = state;
    channel.handshake =
        state->handshake_offset > 0 ? reinterpret_cast<Handshake*>(bytes + state->handshake_offset) : nullptr;
    channel.ring = bytes + state->ring_offset;
    channel.slots = state->slots;
    channel.slot_bytes = state->slot_bytes;
    channel.arena = link_.context.arena_of(channel.message.peer);
  }

  /// Compares the messages, and chooses the stores.
  void choose_stores() {
    sent_bytes_ = received_bytes_ = 0;
    for (const Channel& channel : sends_) sent_bytes_ += channel.message.nbytes;
    for (const Channel& channel : receives_) received_bytes_ += channel.message.nbytes;
    compare_shapes(sends_);
    compare_shapes(receives_);
    choose_copies();
    if (reduces_) reduced_ = find_partial_results(sends_[0], receives_);
    const Index threshold = stream_threshold_bytes();
    const auto ranks = static_cast<Index>(link_.topology.partners.size());
    const Index direct_threshold = direct_stream_bytes(ranks);
    transfer_.large_source = sent_bytes_ >= threshold / large_source_divisor;
    stores_ = StoreChoice(direct_threshold, std::max(sent_bytes_, received_bytes_), direct_stream_is_fixed(ranks));
    Index unpacked_bytes = reduces_ ? 0 : received_bytes_;
    for (const PartialResults& part : reduced_) unpacked_bytes += part.target_bytes(transfer_);
    const Index self_bytes = sends_[0].message.nbytes, unpack_threshold = threshold / unpack_stream_divisor;
    const bool large_target = received_bytes_ + self_bytes >= std::max(unpack_threshold, direct_threshold);
    transfer_.stream_unpacked = large_target && unpacked_bytes >= unpack_threshold;
    stream_self_private_ = large_target || self_bytes >= threshold;  // the latter as every other copy
  }

  // Sender:
  void choose_copies() {
    const auto any = [this](const auto& holds) { return std::any_of(sends_.begin() + 1, sends_.end(), holds); };
    copies_ =
        CopyChoice(any([](const Channel& channel) { return channel.may_read; }),
                   any([](const Channel& channel) { return channel.timed && !channel.may_read; }),
                   any([](const Channel& channel) { return channel.may_read && channel.min_run >= min_remote_run; }));
  }

  void stop_reading(Channel& channel) {
    if (std::exchange(channel.may_read, false)) choose_copies();
  }

  /// Chooses how messages are copied, by the time of the last transfer but one, which all receivers have left.
  void begin_copies() {
    Stay all = std::exchange(earlier_stay_, transfer_.last_stay);
    const bool counts = std::exchange(earlier_took_choice_, std::exchange(takes_choice_, false));
    if (!counts) return copies_.begin(std::nullopt);
    for (const Channel& channel : sends_) {
      if (!channel.handshake) continue;
      const Stay& stay = channel.handshake->receiver_stays[(transfer_.number - 1) % 2];
      all = {std::max(all.begun, stay.begun), std::max(all.ended, stay.ended)};
    }
    copies_.begin(all.seconds());
  }

  /// Decides on a protocol for every receiver that has entered since.
  bool decide_all() {
    if (undecided_ == 0) return false;
    ready_.clear();
    for (Channel& channel : sends_)
      if (channel.protocol == Protocol::undecided &&
          channel.handshake->entered.load(std::memory_order_acquire) == transfer_.number)
        ready_.push_back(&channel);
    update_layouts(target_layouts_, true);
    for (Channel* const channel : ready_) decide(*channel);
    undecided_ -= ready_.size();
    return !ready_.empty();
  }

  void decide(Channel& channel) {
    const bool refused = channel.handshake->refused.load(std::memory_order_acquire) != 0;
    if (refused) stop_reading(channel);
    const Protocol protocol = best_protocol(channel, refused);
    if (protocol == Protocol::pull || protocol == Protocol::read) {
      const Arena* const arena = Arena::made();
      SharedArray* const sources = channel.handshake->sources(link_.tensors.size());
      for (std::size_t t = 0; t < link_.tensors.size(); ++t)
        sources[t].set(transfer_.arrays.sources[t], link_.tensors[t]->source, arena);
    }
    if (protocol == Protocol::read) bytes_not_delegated_ -= channel.message.nbytes;
    takes_choice_ |= channel.timed && (protocol == Protocol::staged || protocol == Protocol::read);
    set_protocol(channel, protocol);
  }

  Protocol best_protocol(Channel& channel, bool refused) const {
    const Reach reach{!reduces_ && channel.address_partner(channel.handshake->targets()),
                      transfer_.sources_shared || (Arena::own().head().exported >= 0 && !refused),
                      channel.min_run >= min_remote_run && !refused};
    if (reduces_) return reach.pull ? Protocol::pull : Protocol::staged;
    if (reach.pull && reach.push) return channel.pulls_better ? Protocol::pull : Protocol::push;
    if (reach.push) {
      // the kernel takes longer to read: this pays where the receiver's core would be idle
      const bool owns_core = static_cast<std::int64_t>(link_.topology.partners.size()) <= usable_cores();
      const bool receiver_copies_less = channel.handshake->receiver_copy_bytes < bytes_not_delegated_;
      return reach.read && owns_core && receiver_copies_less ? Protocol::read : Protocol::push;
    }
    if (reach.pull) {
      const bool scatters = static_cast<Index>(sends_.size()) - 1 >= several_receivers && transfer_.large_source &&
                            channel.max_source_run <= max_scattered_run;
      return scatters ? Protocol::staged : Protocol::pull;
    }
    return channel.may_read && copies_.way().reads ? Protocol::read : Protocol::staged;
  }

  void set_protocol(Channel& channel, Protocol protocol) {
    channel.decide(protocol, channel.timed && copies_.way().streams, transfer_.number);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before it is looked whether the receiver has left
    transfer_.tell(channel);
  }

  static ChannelState::Counter& partner_left(const Channel& channel, bool sends) {
    return sends ? channel.state->receiver_left : channel.state->sender_left;
  }

  /// Ends the copies to or from arrays of partners that have left, and tells these. The transfer does not end: its
  /// failure is on the way to this rank.
  void give_up(std::vector<Channel>& channels, bool sends) {
    for (Channel& channel : channels) {
      const bool copies = sends ? channel.protocol == Protocol::push && !channel.is_self()
                                : channel.protocol == Protocol::pull || channel.protocol == Protocol::read;
      if (!copies || channel.done || partner_left(channel, sends).load(std::memory_order_acquire) == 0) continue;
      (sends ? channel.state->sender_left : channel.state->receiver_left).store(1, std::memory_order_release);
      channel.done = gave_up_ = true;
      transfer_.tell(channel);
    }
  }

  /// Looks for receivers that have copied their message, or refuse to. \return whether one did.
  bool check_receivers() {
    bool any = false;
    for (Channel& channel : sends_) {
      if (channel.done || (channel.protocol != Protocol::pull && channel.protocol != Protocol::read)) continue;
      if (channel.handshake->refused.load(std::memory_order_acquire) == transfer_.number) {
        stop_reading(channel);
        const bool pushes = !reduces_ && channel.address_partner(channel.handshake->targets());
        set_protocol(channel, pushes ? Protocol::push : Protocol::staged);
        any = true;
      } else if (channel.handshake->finished.load(std::memory_order_acquire) == transfer_.number) {
        transfer_.close(channel);
        any = true;
      }
    }
    return any;
  }

  // Receiver:
  void advertise_targets() {
    const Arena* const arena = Arena::made();
    for (Channel& channel : receives_) {
      if (channel.eager()) continue;
      Handshake& handshake = *channel.handshake;
      for (std::size_t t = 0; t < link_.tensors.size(); ++t)
        handshake.targets()[t].set(transfer_.arrays.targets[t], link_.tensors[t]->target, arena);
      handshake.receiver_copy_bytes = sent_bytes_ + received_bytes_;
      handshake.receiver_stays[transfer_.number % 2] = transfer_.last_stay;
      handshake.entered.store(transfer_.number, std::memory_order_release);
      transfer_.tell(channel);
    }
  }

  /// Takes note of decisions of the senders.
  bool accept() {
    bool any = false;
    ready_.clear();
    for (Channel& channel : receives_) {
      if (channel.done || channel.protocol != Protocol::undecided) continue;
      const Handshake& handshake = *channel.handshake;
      const Protocol protocol = handshake.decided(transfer_.number);
      const bool copies = protocol == Protocol::pull || protocol == Protocol::read;
      if (protocol == Protocol::undecided) continue;
      if (!copies)
        take(channel, protocol);
      else if (handshake.refused.load(std::memory_order_relaxed) != transfer_.number)  // else another one will follow
        ready_.push_back(&channel);
      any = any || !copies;
    }
    update_layouts(source_layouts_, false);
    for (Channel* const channel : ready_) accept(*channel);
    return any || !ready_.empty();
  }

  static void take(Channel& channel, Protocol protocol) {
    channel.protocol = protocol;
    channel.slots = channel.handshake->slots;
  }

  /// Copies the message, as its sender has decided, or refuses to.
  void accept(Channel& channel) {
    Handshake& handshake = *channel.handshake;
    const Protocol protocol = handshake.decided(transfer_.number);
    const SharedArray* const sources = handshake.sources(link_.tensors.size());
    if (protocol == Protocol::pull ? !channel.address_partner(sources) : !channel.can_read(sources)) {
      handshake.refused.store(transfer_.number, std::memory_order_release);
      return transfer_.tell(channel);
    }
    if (protocol == Protocol::read) channel.cutter.restart(std::max(channel.part_bytes, read_bytes));
    take(channel, protocol);
  }

  /// Unpacks pieces that have arrived, and pulls the piece that lies first in the target. \return whether there were
  /// any.
  bool receive() {
    bool any = false;
    Channel* first = nullptr;
    for (Channel& channel : receives_) {
      if (channel.done) continue;
      switch (channel.protocol) {
        case Protocol::staged:
          any |= unpack(transfer_, channel);
          break;
        case Protocol::push:
          if (channel.handshake->finished.load(std::memory_order_acquire) != transfer_.number) break;
          transfer_.close(channel);
          any = true;
          break;
        case Protocol::read:
          any = true;
          if (read(transfer_, channel)) break;
          channel.begin();
          channel.handshake->refused.store(transfer_.number, std::memory_order_release);
          transfer_.tell(channel);
          break;
        case Protocol::pull:
          if (!first || channel.cutter.part().target_offset < first->cutter.part().target_offset) first = &channel;
          break;
        case Protocol::undecided:
          break;
      }
    }
    if (!first) return any;
    pulled_.collect(receives_, *first, [](const Channel&) { return true; });
    pull(transfer_, pulled_);
    return true;
  }

  /// Plans the messages of ready channels anew whose partners' arrays have other strides than known: all of them at
  /// once, as each planning takes all partners.
  void update_layouts(std::vector<Layouts>& known, bool sends) {
    std::map<int, Channel*> outdated;  // by peer
    for (Channel* const channel : ready_) {
      const int peer = channel->message.peer;
      const SharedArray* const arrays =
          sends ? channel->handshake->targets() : channel->handshake->sources(known.size());
      for (std::size_t t = 0; t < known.size(); ++t) {
        const auto found = known[t].find(peer);
        if (found != known[t].end() ? arrays[t].has_layout(found->second) : arrays[t].ndim == 0) continue;
        known[t][peer] = arrays[t].layout();
        outdated[peer] = channel;
      }
    }
    if (outdated.empty()) return;
    Messages planned = link_.plan_messages(source_layouts_, target_layouts_);
    for (PeerMessage& message : sends ? planned.sends : planned.receives) {
      const auto found = outdated.find(message.peer);
      if (found == outdated.end()) continue;
      found->second->set(std::move(message), link_.tensors, sends);
      found->second->begin();
    }
    compare_shapes(sends ? sends_ : receives_);
    if (sends) choose_copies();
  }

  Link link_;
  bool reduces_ = false;
  std::vector<PeerMessage> to_receive_;    // until connect()
  std::vector<Channel> sends_, receives_;  // the first one sent is the self copy
  std::vector<Channel*> ready_;            // scratch: those that go on
  std::optional<ChannelMemory> memory_;
  std::vector<Layouts> source_layouts_, target_layouts_;  // [tensors] of partners, if they are not in C order
  Index sent_bytes_ = 0, received_bytes_ = 0;             // with the self copy, without
  bool stream_self_private_ = false;  // whether the self copy to a private array uses non-temporal stores
  StoreChoice stores_;                // of what is pushed or pulled
  CopyChoice copies_;                 // of what is staged, or read out of private memory
  bool takes_choice_ = false, earlier_took_choice_ = false;  // whether a message of this transfer, or the last, does
  Stay earlier_stay_;                                        // in the last transfer but one
  std::vector<PartialResults> reduced_;

  NodeTransfer transfer_;
  SendScheduler scheduler_;
  CopyBatch pulled_;
  bool gave_up_ = false;           // a message whose partner has left
  std::size_t undecided_ = 0;      // messages sent whose receiver has not entered
  Index bytes_not_delegated_ = 0;  // bytes sent that no receiver reads
  int waits_left_ = 0;             // for receivers, until a sender begins without them
};

}  // namespace

std::unique_ptr<Transport> make_node(const Link& link, Messages messages) {
  return std::make_unique<NodeTransport>(link, std::move(messages));
}

}  // namespace dace_redist
