// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "device/direct_plans.hpp"
#include "device/nccl_plan.hpp"
#include "device/peer_exchange.hpp"
#include "device/staged_pipeline.hpp"
#include "device/whole_array_plan.hpp"

namespace dace_redist {
namespace {

/// Strategies Pack, Pipelined, Shared and Hierarchical. Pack sends each message as a whole, the others in chunks. With
/// Shared and Hierarchical devices of one node that reach each other's memory write there; everything else goes through
/// pinned main memory.
class DevicePlan final : public Plan {
 private:
  Device& device() const { return device_.get(); }
  bool node_aware() const { return description().strategy == "Hierarchical" || description().strategy == "Shared"; }
  bool both_on_device() const { return description().all_on_device(); }

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
      device_.take();
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
  struct DeviceEndpoint {
    std::array<char, 16> device{};
    std::int64_t named = 0;   // whether other ranks may map its memory
    DeviceMemoryName memory;  // to try that with
  };

  /// Finds out whose devices reach each other. Collective.
  template <class Here>
  void find_peers(const Here& here) {
    DeviceBuffer sample;
    DeviceEndpoint mine;
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
    std::vector<DeviceEndpoint> endpoints(receivers.size());
    std::vector<std::int64_t> reached(receivers.size()), reach(senders.size());
    std::vector<MPI_Request> requests;
    for (std::size_t r = 0; r < receivers.size(); ++r)
      post_receive(reinterpret_cast<char*>(&endpoints[r]), sizeof endpoints[r], static_cast<int>(receivers[r]),
                   requests);
    for (const Index sender : senders)
      post_send(reinterpret_cast<const char*>(&mine), sizeof mine, static_cast<int>(sender), requests);
    wait_all(requests);
    for (std::size_t s = 0; s < senders.size(); ++s)
      post_receive(reinterpret_cast<char*>(&reach[s]), sizeof reach[s], static_cast<int>(senders[s]), requests);
    for (std::size_t r = 0; r < receivers.size(); ++r) {
      reached[r] = reaches(endpoints[r]);
      if (reached[r]) peers_.push_back(receivers[r]);
      post_send(reinterpret_cast<const char*>(&reached[r]), sizeof reached[r], static_cast<int>(receivers[r]),
                requests);
    }
    wait_all(requests);
    for (std::size_t s = 0; s < senders.size(); ++s)
      if (reach[s]) sources_.push_back(senders[s]);
    check(MPI_Barrier(comm()), "MPI_Barrier");  // nobody maps the sample any more
  }

  bool reaches(const DeviceEndpoint& endpoint) const {
    try {
      const CurrentDevice current(device());
      if (!endpoint.named || !device().reaches(endpoint.device)) return false;
      const MappedMemory mapped(device(), device().map(endpoint.memory));
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

  void exchange(const char* source, char* target) override { exchange_in_parts(source, target); }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device());
    const Event ready = device_.started(description(), schedule(), source, target, stream());
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

  PlanDevice device_;
  bool connected_ = false;
  std::vector<Index> peers_, sources_;  // ranks of the node whose arrays this one writes, and that write this one's
  StagedPipeline pipeline_;
  PeerExchange direct_;  // and what stays on the rank, if both arrays lie on the device
};

/// Strategies of main memory for arrays on a device. Where both arrays lie there, MPI takes their addresses, and
/// nothing is computed that MPI would have to, Datatype and RMA move them without a copy in main memory.
class MainMemoryStrategyPlan final : public Plan {
 private:
  void prepare() override {
    if (plan_) plan_->set_local_arrays(description().source_local, description().target_local);
  }

  void connect() override {
    const bool direct = is_direct();
    if (direct && description().strategy == "Datatype") plan_ = Plan::make<DeviceDatatypePlan>(description(), comm());
    if (direct && description().strategy == "RMA") make_window_plan();
    if (plan_) return;
    say_staged();
    plan_ = Plan::make<WholeArrayPlan>(description(), comm());
  }

  /// Makes a plan with a window on the device, unless MPI cannot: that it takes addresses there says nothing of
  /// windows.
  void make_window_plan() {
    std::string failure;
    try {
      plan_ = Plan::make<DeviceRMAPlan>(description(), comm());
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const bool made_somewhere = lowest_rank(comm(), plan_ != nullptr) >= 0;
    if (!made_somewhere || lowest_rank(comm(), !failure.empty()) < 0) return;
    plan_.release();  // to free the window takes all ranks
    throw Error(failure.empty() ? "another rank has no window on its device" : failure);
  }

  /// Whether it can go without main memory, on every rank. Collective. \throws Error on every rank without a device.
  bool is_direct() const {
    const bool packs = description().strategy == "RMA";  // and so computes, by kernels
    if (!description().all_on_device() || (!packs && !description().operation.is_copy())) return false;
    bool known = false;
    all_or_none(comm(), [&] { known = current_device().known_to_mpi(); });
    return lowest_rank(comm(), !known) < 0;
  }

  /// Says once in a process what happens to arrays on a device.
  void say_staged() const {
    static std::atomic<bool> said{false};
    if (rank() == 0 && !said.exchange(true))
      std::fprintf(stderr,
                   "dace-redist: \"%s\": strategy %s copies arrays on a GPU to main memory as a whole; Hierarchical "
                   "copies only what has to leave the GPU, in chunks\n",
                   description().label.c_str(), description().strategy.c_str());
  }

  void set_stream(Stream stream) override {
    if (plan_) plan_->set_stream(stream);
  }
  void exchange(const char* source, char* target) override { plan_->run(source, target); }
  void begin(const char* source, char* target) override { plan_->start(source, target); }
  bool advance() override { return plan_->progress(); }

  std::unique_ptr<Plan> plan_;
};

}  // namespace

std::unique_ptr<Plan> make_device_plan(const Description& description, MPI_Comm comm) {
  find_strategy(description.strategy);  // throws if there is none
  for (const char* name : {"Pack", "Pipelined", "Shared", "Hierarchical"})
    if (description.strategy == name) return Plan::make<DevicePlan>(description, comm);
  if (description.strategy == "NCCL") return make_nccl_plan(description, comm);
  return Plan::make<MainMemoryStrategyPlan>(description, comm);
}

}  // namespace dace_redist
