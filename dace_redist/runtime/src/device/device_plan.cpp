// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_plan.hpp"

#include <algorithm>
#include <vector>

#include "core/exchange_records.hpp"
#include "device/peer_transport.hpp"
#include "device/staged_transport.hpp"

namespace dace_redist {
namespace {

bool contains(const std::vector<int>& ascending, Index rank) {
  return std::binary_search(ascending.begin(), ascending.end(), static_cast<int>(rank));
}

/// The messages whose peers are among `ranks`, or those whose peers are not.
std::vector<Message> select(std::vector<Message> messages, const std::vector<int>& ranks, bool among) {
  const auto other = [&](const Message& message) { return contains(ranks, message.peer) != among; };
  messages.erase(std::remove_if(messages.begin(), messages.end(), other), messages.end());
  return messages;
}

/// Strategies Pack, Pipelined, Shared and Hierarchical. Pack sends each message as a whole, the others in chunks. With
/// Shared and Hierarchical, devices of one node that reach each other's memory write there; all other messages go
/// through pinned main memory.
class DevicePlan final : public Plan {
 private:
  bool is(const char* strategy) const { return description().strategy == strategy; }
  bool both_on_device() const { return description().all_on_device(); }

  StagedTransport::Limits limits() const {
    const Options& given = options();
    if (is("Pack")) return {given.max_message_bytes, 1.0, 0};
    return {std::min(given.chunk_bytes, given.max_message_bytes), given.growth, static_cast<std::size_t>(given.depth)};
  }

  /// Messages that go through main memory: those that no device writes directly, and between memories the self copy.
  std::vector<Message> staged(std::vector<Message> messages, const std::vector<int>& direct_peers) const {
    messages = select(std::move(messages), direct_peers, false);
    if (!both_on_device() && schedule().self.count > 0) {
      messages.push_back(schedule().self);
      messages.back().peer = rank();
    }
    return messages;
  }

  RankSchedule direct_schedule(const Layouts& targets) const {
    RankSchedule direct = schedule_with({}, targets);
    direct.sends = select(std::move(direct.sends), peers_, true);
    direct.receives = select(std::move(direct.receives), sources_, true);
    return direct;
  }

  void prepare() override {
    if (!connected_) return;
    const CurrentDevice current(device_.get());
    staged_.set_arrays(description().source_memory, description().target_memory, staged(sends_in_order(), peers_),
                       staged(receives_in_order(), sources_), steps());
    if (!both_on_device()) return;
    const auto planner = [this](const Layouts& targets) { return direct_schedule(targets); };
    direct_.set_arrays(device_, comm(), direct_tag, planner, direct_schedule({}), target_layout(), steps());
  }

  void connect() override {
    const std::vector<int> node_ranks = ranks_of_node(comm());
    all_or_none(comm(), [&] {
      check_strategy();
      device_.take(description(), steps());
      if (is("Shared")) check_peers(node_ranks);
    });
    if ((is("Shared") || is("Hierarchical")) && both_on_device()) find_peers(node_ranks);
    staged_.connect(device_, comm(), staged_tag, staged(sends_in_order(), peers_),
                    staged(receives_in_order(), sources_), steps(), limits(), node_ranks,
                    [this](const std::function<void()>& work) { return works_on_node(work); });
    connected_ = true;
    all_or_none(comm(), [&] { prepare(); });
  }

  void check_strategy() const {
    for (const char* const name : {"Pack", "Pipelined", "Shared", "Hierarchical"})
      if (is(name)) return;
    throw Error(text("strategy ", description().strategy, " moves arrays in main memory only, but the ",
                     both_on_device()                                ? "source and the target lie"
                     : description().source_memory == Memory::device ? "source lies"
                                                                     : "target lies",
                     " on a GPU; use Pack, Pipelined, Shared, Hierarchical or NCCL"));
  }

  void check_peers(const std::vector<int>& node_ranks) const {
    for (const std::vector<Message>* messages : {&schedule().sends, &schedule().receives})
      for (const Message& message : select(*messages, node_ranks, false))
        throw Error(text("strategy Shared moves between ranks of one node, but ranks ", rank(), " and ", message.peer,
                         " are on different nodes; take Hierarchical"));
  }

  /// A receiver's device, and memory there to try whether its senders can map it.
  struct DeviceEndpoint {
    std::array<char, 16> device{};
    std::int64_t named = 0;  // whether other ranks may map its memory
    DeviceMemoryName memory;
  };

  /// Finds the ranks of the node whose devices reach each other. Collective.
  void find_peers(const std::vector<int>& node_ranks) {
    DeviceBuffer sample;  // is mapped by senders until they have answered
    DeviceEndpoint mine;
    try {
      const CurrentDevice current(device_.get());
      sample = DeviceBuffer(device_.get(), 1);
      mine.device = device_.get().unique_id();
      mine.named = device_.get().name_memory(sample.at(0), mine.memory);
    } catch (const Error&) {
      mine.named = 0;
    }
    std::vector<int> receivers, senders;
    for (const Message& message : select(schedule().sends, node_ranks, true))
      receivers.push_back(static_cast<int>(message.peer));
    for (const Message& message : select(schedule().receives, node_ranks, true))
      senders.push_back(static_cast<int>(message.peer));
    const std::vector<DeviceEndpoint> own(senders.size(), mine),
        endpoints = exchange_records(comm(), tag, senders, own, receivers);
    std::vector<std::int64_t> reached;
    for (const DeviceEndpoint& endpoint : endpoints) reached.push_back(reaches(endpoint));
    const std::vector<std::int64_t> reach = exchange_records(comm(), tag, receivers, reached, senders);
    for (std::size_t r = 0; r < receivers.size(); ++r)
      if (reached[r]) peers_.push_back(receivers[r]);
    for (std::size_t s = 0; s < senders.size(); ++s)
      if (reach[s]) sources_.push_back(senders[s]);
  }

  bool reaches(const DeviceEndpoint& endpoint) const {
    try {
      const CurrentDevice current(device_.get());
      if (!endpoint.named || !device_.get().reaches(endpoint.device)) return false;
      const MappedMemory mapped(device_.get(), device_.get().map(endpoint.memory));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void exchange(const char* source, char* target) override { exchange_in_parts(source, target); }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device_.get());
    device_.begin(description(), schedule(), source, target, stream());
    if (both_on_device()) direct_.begin(source, target);
    staged_.begin(source, target);
  }

  bool advance() override {
    const CurrentDevice current(device_.get());
    device_.set_caller(stream());
    while (direct_.progress() | staged_.progress()) {
    }
    if (!direct_.done() || !staged_.done()) return false;
    device_.check();
    return true;
  }

  static constexpr int direct_tag = tag, staged_tag = tag + 2;  // the latter and those that follow

  PlanDevice device_;
  bool connected_ = false;
  std::vector<int> peers_, sources_;  // ascending; ranks whose arrays this one writes, and that write this one's array
  StagedTransport staged_;
  PeerTransport direct_;  // also the self copy, if both arrays lie on the device
};

}  // namespace

std::unique_ptr<Plan> make_device_plan(const Description& description, MPI_Comm comm) {
  find_strategy(description.strategy);  // throws if there is none
  if (description.strategy == "NCCL") return make_nccl_plan(description, comm);
  return Plan::make<DevicePlan>(description, comm);
}

}  // namespace dace_redist
