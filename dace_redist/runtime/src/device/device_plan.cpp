// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_plan.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "device/peer_exchange.hpp"
#include "device/staged_pipeline.hpp"
#include "node/shared_memory.hpp"

namespace dace_redist {
namespace {

/// What plans for a device share: the device, the order with the caller's stream, checks of the arrays.
class OnDevicePlan : public Plan {
 protected:
  Device& device() const { return *device_; }
  bool on_device(Memory memory) const { return memory == Memory::device; }

  /// The device of the calling thread from now on, and its events. \throws Error if there is none.
  void take_device() {
    device_ = &current_device();
    const CurrentDevice current(*device_);
    started_ = make_event(*device_);
  }

  /// Marks what the caller enqueued before. \throws Error if an array does not lie where the plan was told.
  Event started(const char* source, const char* target) {
    check_memory("source", source, description().source_memory, !schedule().sends.empty() || has_own());
    check_memory("target", target, description().target_memory, !schedule().receives.empty() || has_own());
    device_->record(started_.get(), stream());
    return started_.get();
  }

 private:
  bool has_own() const { return schedule().self.count > 0; }

  void check_memory(const char* side, const char* array, Memory expected, bool used) const {
    if (!used) return;
    const int number = device_->device_of(array);
    if (expected == Memory::host && number >= 0)
      throw Error(text("the ", side, " array lies on device ", number, "; the plan was made for main memory"));
    if (expected == Memory::device && number < 0)
      throw Error(text("the ", side, " array lies in main memory; the plan was made for ", device_->name()));
    if (expected == Memory::device && number != device_->number())
      throw Error(text("the ", side, " array lies on device ", number, "; the plan was made for ", device_->name()));
  }

  Device* device_ = nullptr;
  OwnedEvent started_;
};

/// Strategies Pack, Pipelined, Shared and Hierarchical. Pack sends each message as a whole, the others in chunks. With
/// Shared and Hierarchical devices of one node that reach each other's memory write there; everything else goes through
/// pinned main memory.
class DevicePlan final : public OnDevicePlan {
 private:
  bool node_aware() const { return description().strategy == "Hierarchical" || description().strategy == "Shared"; }
  bool both_on_device() const {
    return on_device(description().source_memory) && on_device(description().target_memory);
  }

  StagedPipeline::Limits limits() const {
    const Options& given = options();
    if (description().strategy == "Pack") return {given.max_message_bytes, 1.0, 0};
    return {std::min(given.chunk_bytes, given.max_message_bytes), given.growth, static_cast<std::size_t>(given.depth)};
  }

  bool is_peer(Index rank) const { return std::binary_search(peers_.begin(), peers_.end(), rank); }

  std::vector<Message> staged(std::vector<Message> messages, bool sends) const {
    const auto goes_directly = [&](const Message& message) {
      return sends ? is_peer(message.peer) : is_source(message.peer);
    };
    messages.erase(std::remove_if(messages.begin(), messages.end(), goes_directly), messages.end());
    if (!both_on_device() && schedule().self.count > 0) {  // between memories also what stays on the rank
      messages.push_back(schedule().self);
      messages.back().peer = rank();
    }
    return messages;
  }
  bool is_source(Index rank) const { return std::binary_search(sources_.begin(), sources_.end(), rank); }

  RankSchedule direct_schedule(const Layouts& targets) const {
    RankSchedule direct = schedule_with({}, targets);
    const auto drop = [](std::vector<Message>& messages, const std::vector<Index>& kept) {
      const auto other = [&](const Message& message) {
        return !std::binary_search(kept.begin(), kept.end(), message.peer);
      };
      messages.erase(std::remove_if(messages.begin(), messages.end(), other), messages.end());
    };
    drop(direct.sends, peers_);
    drop(direct.receives, sources_);
    return direct;
  }

  void prepare() override {
    if (!connected_) return;
    const CurrentDevice current(device());
    const auto sends = staged(sends_in_order(), true), receives = staged(receives_in_order(), false);
    pipeline_.set_arrays(description().source_memory, description().target_memory, sends, receives, steps(), limits());
    if (!both_on_device()) return;
    const auto planner = [this](const Layouts& targets) { return direct_schedule(targets); };
    direct_.prepare(device(), comm(), direct_tag, planner, direct_schedule({}), target_layout(), steps());
  }

  void connect() override {
    const std::vector<int> ranks_here = ranks_of_node(comm());
    const auto here = [&](Index rank) {
      return std::binary_search(ranks_here.begin(), ranks_here.end(), static_cast<int>(rank));
    };
    all_or_none(comm(), [&] {
      take_device();
      if (description().strategy != "Shared") return;
      for (const std::vector<Message>* messages : {&schedule().sends, &schedule().receives})
        for (const Message& message : *messages)
          if (!here(message.peer))
            throw Error(text("strategy Shared moves between ranks of one node, but ranks ", rank(), " and ",
                             message.peer, " are on different nodes; take Hierarchical"));
    });
    if (node_aware() && both_on_device()) find_peers(here);
    const auto prepare_slots = [&](bool shared) {
      const CurrentDevice current(device());
      const auto sends = staged(sends_in_order(), true), receives = staged(receives_in_order(), false);
      pipeline_.prepare(device(), sends, receives, steps(), limits(), shared);
    };
    std::vector<Index> node_receivers;
    if (works_on_node([&] { prepare_slots(true); }))
      node_receivers = connect_slots(here);
    else
      all_or_none(comm(), [&] { prepare_slots(false); });
    pipeline_.set_network(comm(), tag, acknowledgement_tag, node_receivers);
    connected_ = true;
    all_or_none(comm(), [&] { prepare(); });
  }

  /// What a rank tells those that send to it before the first exchange.
  struct DeviceCard {
    std::array<char, 16> device{};
    std::int64_t named = 0;   // whether other ranks may map its memory
    DeviceMemoryName memory;  // to try that with
  };

  /// Finds out whose devices reach each other. Collective.
  template <class Here>
  void find_peers(const Here& here) {
    DeviceBuffer sample;
    DeviceCard mine;
    try {
      const CurrentDevice current(device());
      sample = DeviceBuffer(device(), 1);
      mine.device = device().unique_id();
      mine.named = device().name_memory(sample.at(0), mine.memory);
    } catch (const Error&) {
      mine.named = 0;
    }
    std::vector<Index> receivers, senders;
    for (const Message& message : schedule().sends)
      if (here(message.peer)) receivers.push_back(message.peer);
    for (const Message& message : schedule().receives)
      if (here(message.peer)) senders.push_back(message.peer);
    std::vector<DeviceCard> cards(receivers.size());
    std::vector<std::int64_t> reached(receivers.size()), reach(senders.size());
    std::vector<MPI_Request> requests;
    for (std::size_t r = 0; r < receivers.size(); ++r)
      post_receive(reinterpret_cast<char*>(&cards[r]), sizeof cards[r], static_cast<int>(receivers[r]), requests);
    for (const Index sender : senders)
      post_send(reinterpret_cast<const char*>(&mine), sizeof mine, static_cast<int>(sender), requests);
    wait_all(requests);
    for (std::size_t s = 0; s < senders.size(); ++s)
      post_receive(reinterpret_cast<char*>(&reach[s]), sizeof reach[s], static_cast<int>(senders[s]), requests);
    for (std::size_t r = 0; r < receivers.size(); ++r) {
      reached[r] = reaches(cards[r]);
      if (reached[r]) peers_.push_back(receivers[r]);
      post_send(reinterpret_cast<const char*>(&reached[r]), sizeof reached[r], static_cast<int>(receivers[r]),
                requests);
    }
    wait_all(requests);
    for (std::size_t s = 0; s < senders.size(); ++s)
      if (reach[s]) sources_.push_back(senders[s]);
    check(MPI_Barrier(comm()), "MPI_Barrier");  // nobody maps the sample any more
  }

  bool reaches(const DeviceCard& card) const {
    try {
      const CurrentDevice current(device());
      if (!card.named || !device().reaches(card.device)) return false;
      const MappedMemory mapped(device(), device().map(card.memory));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  /// Has receivers of the node map the slots of their senders. Collective. \return those of this rank's, ascending.
  template <class Here>
  std::vector<Index> connect_slots(const Here& here) {
    std::vector<Index> receivers;
    std::map<Index, SegmentEndpoint> senders;
    for (const Message& message : staged(schedule().sends, true))
      if (here(message.peer) && message.peer != rank()) receivers.push_back(message.peer);
    for (const Message& message : staged(schedule().receives, false))
      if (here(message.peer) && message.peer != rank()) senders[message.peer];
    const SegmentEndpoint mine = pipeline_.endpoint();
    std::vector<MPI_Request> requests;
    for (auto& [sender, endpoint] : senders)
      post_receive(reinterpret_cast<char*>(&endpoint), sizeof endpoint, static_cast<int>(sender), requests);
    for (const Index receiver : receivers)
      post_send(reinterpret_cast<const char*>(&mine), sizeof mine, static_cast<int>(receiver), requests);
    wait_all(requests);
    const bool mapped = works_on_node([&] {
      const CurrentDevice current(device());
      pipeline_.connect(senders);
    });
    if (!mapped) {
      pipeline_.disconnect();
      receivers.clear();
    }
    std::sort(receivers.begin(), receivers.end());
    return receivers;
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    for (Backoff backoff(2); !advance();) backoff.wait();
  }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device());
    const Event ready = started(source, target);
    if (both_on_device()) direct_.begin(source, target, ready);
    pipeline_.begin(source, target, ready);
  }

  bool advance() override {
    const CurrentDevice current(device());
    while (advances()) {
    }
    if (!done()) return false;
    if (both_on_device()) direct_.finish(stream());
    pipeline_.finish(stream());
    return true;
  }

  bool advances() {
    bool any = both_on_device() && direct_.progress();
    any |= !pipeline_.finished() && pipeline_.progress();
    return any;
  }
  bool done() const { return pipeline_.finished() && (!both_on_device() || direct_.finished()); }

  static constexpr int direct_tag = tag + 1, acknowledgement_tag = tag + 3;  // both take those that follow

  bool connected_ = false;
  std::vector<Index> peers_, sources_;  // ranks of the node whose arrays this one writes, and that write this one's
  StagedPipeline pipeline_;
  PeerExchange direct_;  // and what stays on the rank, if both arrays lie on the device
};

/// All other strategies: arrays on the device are copied as a whole to main memory, moved by the strategy there, and
/// copied back.
class WholeArrayPlan final : public OnDevicePlan {
 private:
  void prepare() override {
    if (!plan_) return;
    const CurrentDevice current(device());
    plan_->set_local_arrays(description().source_local, description().target_local);
    take_memory();
  }

  void connect() override {
    all_or_none(comm(), [&] { take_device(); });
    Description in_main_memory = description();
    in_main_memory.source_memory = in_main_memory.target_memory = Memory::host;
    plan_ = find_strategy(description().strategy)(in_main_memory, comm());
    all_or_none(comm(), [&] {
      const CurrentDevice current(device());
      take_memory();
    });
  }

  /// Bytes from the first to the last element of a local array.
  static Index span_of(const Encoding& local, Index element_bytes) {
    const std::size_t ndim = local.size() / 2;
    Index last = 0;
    for (std::size_t d = 0; d < ndim; ++d) {
      if (local[d] == 0) return 0;
      last += (local[d] - 1) * local[ndim + d];
    }
    return (last + 1) * element_bytes;
  }

  void take_memory() {
    const Index target_bytes = steps().unpack().target_bytes;
    source_.nbytes = span_of(description().source_local, element_bytes());
    target_.nbytes = span_of(description().target_local, target_bytes);
    source_.staged = on_device(description().source_memory);
    target_.staged = on_device(description().target_memory);
    for (StagedArray* array : {&source_, &target_})
      if (array->staged) array->memory = PinnedBuffer(device(), array->nbytes);
  }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device());
    started(source, target);
    device_target_ = target;
    if (source_.staged) device().copy(source_.memory.at(0), source, source_.nbytes, stream());
    if (target_.staged)
      device().copy(target_.memory.at(0), target, target_.nbytes, stream());  // what does not move stays
    device().synchronize(stream());
    plan_->start(source_.staged ? source_.memory.at(0) : source, target_.staged ? target_.memory.at(0) : target);
  }

  bool advance() override {
    if (!plan_->progress()) return false;
    const CurrentDevice current(device());
    if (target_.staged) device().copy(device_target_, target_.memory.at(0), target_.nbytes, stream());
    device().synchronize(stream());
    return true;
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    for (Backoff backoff(2); !advance();) backoff.wait();
  }

  struct StagedArray {
    bool staged = false;
    Index nbytes = 0;
    PinnedBuffer memory;
  };

  std::unique_ptr<Plan> plan_;
  StagedArray source_, target_;
  char* device_target_ = nullptr;  // of the exchange at hand
};

}  // namespace

std::unique_ptr<Plan> make_device_plan(const Description& description, MPI_Comm comm) {
  find_strategy(description.strategy);  // throws if there is none
  for (const char* name : {"Pack", "Pipelined", "Shared", "Hierarchical"})
    if (description.strategy == name) return Plan::make<DevicePlan>(description, comm);
  return Plan::make<WholeArrayPlan>(description, comm);
}

}  // namespace dace_redist
