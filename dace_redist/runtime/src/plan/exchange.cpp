// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <utility>

#include "plan/plan.hpp"

namespace dace_redist {
namespace {

/// Sums of fewer bytes are added by MPI: ranks would wait for each other longer than they add.
constexpr Index min_node_sum_bytes = Index{64} << 10;
/// Sums that all ranks get are added by MPI from so many ranks on.
constexpr Index max_node_sum_replicas = 4;

const Strategy& strategy_of(const Problem& problem, const std::vector<TensorProblem>& tensors) {
  const Strategy& strategy = find_strategy(problem.strategy);
  const bool sums = problem.strategy == "SumReplicas" && !tensors.front().reduces();
  return sums ? find_strategy("Hierarchical") : strategy;
}

bool is_small_sum(const TensorProblem& tensor) {
  Index nbytes = tensor.element_bytes;
  for (const Index extent : tensor.source.local_shape(tensor.source.first_rank())) nbytes *= extent;
  const bool everyone = tensor.target.replicas() == tensor.source.replicas();
  return nbytes < min_node_sum_bytes || (everyone && tensor.source.replicas() > max_node_sum_replicas);
}

}  // namespace

DeviceTransports& device_transports() {
  static DeviceTransports maker;
  return maker;
}

Exchange::Exchange(Context& context, std::int64_t owner, const Problem& problem, std::vector<TensorProblem> tensors,
                   ReplicaPolicy policy, std::vector<ArrayOfPlan> sources, std::vector<ArrayOfPlan> targets,
                   const Stream& stream)
    : context_(context),
      problem_(problem),
      strategy_(strategy_of(problem, tensors)),
      topology_(context.topology()),
      problems_(std::move(tensors)),
      policy_(policy),
      source_arrays_(std::move(sources)),
      target_arrays_(std::move(targets)),
      stream_(stream),
      order_(topology_, context.size(), strategy_.on_node != nullptr),
      number_(context.next_plan()),
      owner_(owner),
      sources_(problems_.size()),
      targets_(problems_.size()) {
  for (const TensorProblem& tensor : problems_) {
    maps_.emplace_back(tensor.index_map, tensor.source, tensor.target);
    Tensor& made = *tensors_.emplace_back(std::make_unique<Tensor>());
    made.operation = tensor.operation;
    made.reduces = policy_.kind == ReplicaPolicy::all;
    made.steps.set(tensor.operation, tensor.element_bytes);
    if (made.reduces) made.reduction.set(tensor.operation, tensor.element_bytes);
    for (const Index number : tensor.source.encoding())
      made.group_key = made.group_key * 1099511628211ull + static_cast<std::uint64_t>(number);
  }
  reads_.resize(problems_.size());
  writes_.resize(problems_.size());
  set_layouts();
}

void Exchange::set_layouts() {
  const Index rank = context_.rank();
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const TensorProblem& tensor = problems_[t];
    tensors_[t]->source =
        abbreviated(tensor.source, local_layout(tensor.source, tensor.source_array, rank, "source"), rank);
    tensors_[t]->target =
        abbreviated(tensor.target, local_layout(tensor.target, tensor.target_array, rank, "target"), rank);
  }
}

void Exchange::set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets) {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const ArrayOfPlan &source = source_arrays_[t], &target = target_arrays_[t];
    problems_[t].source_array = (source.target ? targets : sources)[source.tensor];
    problems_[t].target_array = targets[target.tensor];
  }
  set_layouts();
  Messages messages = plan_messages(std::vector<Layouts>(problems_.size()), std::vector<Layouts>(problems_.size()));
  for (const auto& transport : transports_) transport->replan(messages);
}

Messages Exchange::plan_messages(const std::vector<Layouts>& sources, const std::vector<Layouts>& targets) const {
  const Index rank = context_.rank();
  Messages messages;
  std::map<int, PeerMessage> sent, received;
  const auto add = [](PeerMessage& to, std::size_t tensor, Message& from) {
    to.peer = static_cast<int>(from.peer);
    to.summand = from.turn;
    for (StridedBlock& block : from.blocks) to.blocks.push_back({static_cast<int>(tensor), block});
  };
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const TensorProblem& tensor = problems_[t];
    Layouts source_layouts = sources[t], target_layouts = targets[t];
    source_layouts[rank] = local_layout(tensor.source, tensor.source_array, rank, "source");
    target_layouts[rank] = local_layout(tensor.target, tensor.target_array, rank, "target");
    RankSchedule schedule =
        make_schedule(tensor.source, tensor.target, maps_[t], rank, true, source_layouts, target_layouts, policy_);
    for (Message& message : schedule.sends) add(sent[static_cast<int>(message.peer)], t, message);
    for (Message& message : schedule.receives) add(received[static_cast<int>(message.peer)], t, message);
    if (schedule.self.count > 0) add(messages.self, t, schedule.self);
  }
  messages.self.peer = static_cast<int>(rank);
  const Index steps = context_.size() * 2 + 2;  // more than a MessageOrder has
  const auto finish = [&](PeerMessage& message, Index step) {
    message.nbytes = packed_bytes(message.blocks, tensors_);
    message.step = message.summand * steps * steps + step;
  };
  finish(messages.self, 0);
  for (auto& [peer, message] : sent) {
    finish(message, order_.step(rank, peer));
    messages.sends.push_back(std::move(message));
  }
  for (auto& [peer, message] : received) {
    finish(message, order_.step(peer, rank));
    messages.receives.push_back(std::move(message));
  }
  for (std::vector<PeerMessage>* list : {&messages.sends, &messages.receives})
    std::sort(list->begin(), list->end(), [](const PeerMessage& a, const PeerMessage& b) { return a.step < b.step; });
  return messages;
}

void Exchange::make(bool node_memory) {
  transports_.clear();
  const std::vector<Layouts> in_c_order(problems_.size());
  Messages messages = plan_messages(in_c_order, in_c_order);
  for (const auto* list : {&messages.sends, &messages.receives})
    for (const PeerMessage& message : *list)
      for (const Block& block : message.blocks)
        (list == &messages.sends ? reads_ : writes_)[static_cast<std::size_t>(block.tensor)] = 1;
  for (const Block& block : messages.self.blocks)
    reads_[static_cast<std::size_t>(block.tensor)] = writes_[static_cast<std::size_t>(block.tensor)] = 1;
  const Link link{context_,
                  topology_,
                  tensors_,
                  problem_.options,
                  number_,
                  owner_,
                  context_.tag(number_),
                  [this](const auto& sources, const auto& targets) { return plan_messages(sources, targets); }};
  const TensorProblem& first = problems_.front();
  bool separable = true;
  if (policy_.kind == ReplicaPolicy::all) {
    if (problem_.strategy == "SumReplicas" && is_small_sum(first)) node_memory = false;
    separable =
        strategy_.on_node && node_memory && topology_.one_node() && !first.source.tiled() && !first.target.tiled();
  }
  const bool on_device =
      std::any_of(problems_.begin(), problems_.end(), [](const TensorProblem& tensor) { return tensor.on_device(); });
  if (!on_device) {
    transports_ = make_transports(strategy_, link, std::move(messages), node_memory, separable);
    return;
  }
  if (!device_transports().make) throw Error("this library was built without support for arrays in device memory");
  transports_ =
      device_transports().make(strategy_, link, std::move(messages), problems_, stream_, node_memory, separable);
}

void Exchange::connect() {
  for (const auto& transport : transports_) transport->connect();
}

void Exchange::begin(const void* const* sources, void* const* targets, Pace pace) {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const ArrayOfPlan& source = source_arrays_[t];
    sources_[t] = static_cast<const char*>(source.target ? targets[source.tensor] : sources[source.tensor]);
    targets_[t] = static_cast<char*>(targets[target_arrays_[t].tensor]);
  }
  for (const auto& transport : transports_) transport->begin({sources_.data(), targets_.data()}, pace);
}

bool Exchange::progress() {
  bool any = false;
  for (const auto& transport : transports_)
    if (!transport->done()) any |= transport->progress();
  return any;
}

bool Exchange::progress_without_mpi() {
  bool any = false;
  for (const auto& transport : transports_)
    if (transport->runs_without_mpi() && !transport->done()) any |= transport->progress();
  return any;
}

bool Exchange::done() const {
  return std::all_of(transports_.begin(), transports_.end(), [](const auto& transport) { return transport->done(); });
}

void Exchange::wake_partners() {
  for (const auto& transport : transports_)
    if (!transport->done()) transport->wake_partners();
}

bool Exchange::waits_for_node() const {
  return std::all_of(transports_.begin(), transports_.end(),
                     [](const auto& transport) { return transport->done() || transport->runs_without_mpi(); });
}

std::string Exchange::missing_array(const void* const* sources, void* const* targets, bool several) const {
  const auto name = [several](const ArrayOfPlan& array) {
    const std::string side = array.target ? "target" : "source";
    return several ? text(side, "[", array.tensor, "]") : side;
  };
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const ArrayOfPlan &source = source_arrays_[t], &target = target_arrays_[t];
    const void* const from = source.target ? targets[source.tensor] : sources[source.tensor];
    if (reads_[t] && !from) return name(source);
    if (writes_[t] && !targets[target.tensor]) return name(target);
  }
  return "";
}

}  // namespace dace_redist
