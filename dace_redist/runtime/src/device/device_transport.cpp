// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_transport.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/agreement.hpp"
#include "plan/exchange.hpp"
#include "transport/exchange_records.hpp"

namespace dace_redist {
namespace {

constexpr int peer_tag = 2;  // behind those of staged messages

/// A receiver's device, and memory there to try whether its senders can map it.
struct DeviceEndpoint {
  std::array<char, 16> device{};
  std::int64_t named = 0;  // whether other ranks may map its memory
  DeviceMemoryName memory;
};

/// The answer of a device; false if it fails.
template <class Question>
bool succeeds(const Question& question) {
  try {
    return question();
  } catch (const Error&) {
    return false;
  }
}

/// Devices of one node that reach each other's memory write there; all other messages go through pinned main memory.
class DeviceTransport final : public Transport {
 public:
  DeviceTransport(const Link& link, Messages messages, const TensorProblem& problem, const Stream& caller,
                  bool node_memory)
      : link_(link),
        tensor_(*link.tensors[0]),
        problem_(problem),
        node_memory_(node_memory),
        cutting_(cutting()),
        messages_(std::move(messages)),
        device_(problem, tensor_, messages_, caller) {}

  void connect() override {
    const CurrentDevice current(device_.get());
    const std::exception_ptr thrown = caught([&] {
      if (both_on_device()) find_peers();
    });
    if (thrown) link_.context.report_failure(link_.owner, message_of(thrown));  // to ranks that wait for this one
    if (both_on_device() && tensor_.reduces) agree_to_reduce();
    all_or_none(link_.comm(), [&] {
      if (thrown) std::rethrow_exception(thrown);
      if (both_on_device()) direct_ = make_peer(device_, link_, link_.tag + peer_tag, direct(messages_));
      staged_ = make_staged(device_, link_, problem_, cutting_, staged(std::move(messages_)), node_memory_);
    });
    staged_->connect();
  }

  void replan(Messages messages) override {
    const CurrentDevice current(device_.get());
    if (direct_) direct_->replan(direct(messages));
    staged_->replan(staged(std::move(messages)));
  }

  void begin(const Arrays& arrays, Pace pace) override {
    const CurrentDevice current(device_.get());
    device_.begin(arrays);
    if (direct_) direct_->begin(arrays, pace);
    staged_->begin(arrays, pace);
  }

  bool progress() override {
    const CurrentDevice current(device_.get());
    bool any = false;
    while ((direct_ && direct_->progress()) | staged_->progress()) any = true;
    return any;
  }

  bool done() const override { return (!direct_ || direct_->done()) && staged_->done(); }

  Leaving leave() override {
    const CurrentDevice current(device_.get());
    const Leaving staged = staged_->leave();
    return direct_ ? std::min(direct_->leave(), staged) : staged;
  }
  bool at_rest() const override { return (!direct_ || direct_->at_rest()) && staged_->at_rest(); }

 private:
  bool both_on_device() const {
    return problem_.source_memory == Memory::device && problem_.target_memory == Memory::device;
  }

  Cutting cutting() const {
    const Options& given = link_.options;
    const Index chunk_bytes = std::min(given.chunk_bytes, given.max_message_bytes);
    return {link_.threads(), false, chunk_bytes, given.depth, given.growth};
  }

  /// Messages between devices that reach each other, and the self copy.
  Messages direct(Messages messages) const {
    keep(messages.sends, receivers_, true);
    keep(messages.receives, senders_, true);
    if (staged_reduction()) messages.self = {};
    return messages;
  }

  /// Messages that go through main memory; between memories also the self copy, as a message.
  Messages staged(Messages messages) const {
    keep(messages.sends, receivers_, false);
    keep(messages.receives, senders_, false);
    if (both_on_device()) {
      if (!staged_reduction()) messages.self = {};
      return messages;
    }
    const auto by_step = [](const PeerMessage& a, const PeerMessage& b) { return a.step < b.step; };
    const PeerMessage self = std::exchange(messages.self, {});
    if (self.nbytes > 0)
      for (auto* list : {&messages.sends, &messages.receives})
        list->insert(std::upper_bound(list->begin(), list->end(), self, by_step), self);
    return messages;
  }

  /// Partial results are reduced in order, so all of them go one way.
  bool staged_reduction() const { return tensor_.reduces && !peers_reduce_; }

  static void keep(std::vector<PeerMessage>& messages, const std::set<int>& peers, bool among) {
    const auto other = [&](const PeerMessage& message) { return (peers.count(message.peer) > 0) != among; };
    messages.erase(std::remove_if(messages.begin(), messages.end(), other), messages.end());
  }

  /// Finds the ranks of the node whose devices reach each other. Collective over them.
  void find_peers() {
    Device& device = device_.get();
    DeviceBuffer sample;  // is mapped by senders until they have answered
    DeviceEndpoint mine;
    mine.device = device.unique_id();
    mine.named = succeeds([&] {
      sample = DeviceBuffer(device, 1);
      return device.name_memory(sample.at(0), mine.memory);
    });
    const std::vector<int> receivers = node_peers(messages_.sends, link_),
                           senders = node_peers(messages_.receives, link_);
    const std::vector<DeviceEndpoint> own(senders.size(), mine),
        endpoints = exchange_records(link_, senders, own, receivers);
    std::vector<std::int64_t> reached;
    for (const DeviceEndpoint& endpoint : endpoints)
      reached.push_back(
          succeeds([&] { return endpoint.named && device.reaches(endpoint.device) && device.map(endpoint.memory); }));
    const std::vector<std::int64_t> reach = exchange_records(link_, receivers, reached, senders);
    for (std::size_t r = 0; r < receivers.size(); ++r)
      if (reached[r]) receivers_.insert(receivers[r]);
    for (std::size_t s = 0; s < senders.size(); ++s)
      if (reach[s]) senders_.insert(senders[s]);
  }

  /// Peers reduce if all messages move between them. Collective.
  void agree_to_reduce() {
    const bool all = receivers_.size() == messages_.sends.size() && senders_.size() == messages_.receives.size();
    peers_reduce_ = lowest_rank(link_.comm(), !all) < 0;
    if (peers_reduce_) return;
    receivers_.clear();
    senders_.clear();
  }

  const Link link_;
  const Tensor& tensor_;
  const TensorProblem problem_;
  bool node_memory_;
  Cutting cutting_;
  Messages messages_;  // until connect()
  PlanDevice device_;
  std::set<int> receivers_, senders_;  // ranks whose arrays this one writes, and that write this one's array
  bool peers_reduce_ = false;
  std::unique_ptr<Transport> direct_;  // if both arrays lie on the device
  std::unique_ptr<Transport> staged_;
};

void check_strategy(const Strategy& strategy, const TensorProblem& tensor) {
  if (strategy.on_node) return;
  const bool source = tensor.source_memory == Memory::device, target = tensor.target_memory == Memory::device;
  throw Error(text("strategy ", strategy.name, " moves arrays in main memory only, but the ",
                   source && target ? "source and the target lie"
                   : source         ? "source lies"
                                    : "target lies",
                   " on a GPU; use Hierarchical"));
}

}  // namespace

std::unique_ptr<Transport> make_device_transport(const Strategy& strategy, const Link& link, Messages messages,
                                                 const std::vector<TensorProblem>& tensors, const Stream& stream,
                                                 bool node_memory) {
  check_strategy(strategy, tensors.front());
  return std::make_unique<DeviceTransport>(link, std::move(messages), tensors.front(), stream, node_memory);
}

std::vector<int> node_peers(const std::vector<PeerMessage>& messages, const Link& link) {
  std::vector<int> peers;
  for (const PeerMessage& message : messages)
    if (message.peer != link.rank() && link.topology.is_partner(message.peer)) peers.push_back(message.peer);
  return peers;
}

}  // namespace dace_redist
