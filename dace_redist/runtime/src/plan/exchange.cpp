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

/// A sum of a single partial result is a copy.
const Strategy& strategy_of(const Problem& problem, const std::vector<TensorProblem>& tensors) {
  const Strategy& strategy = find_strategy(problem.strategy);
  return strategy.sums && !tensors.front().reduces() ? find_strategy("Hierarchical") : strategy;
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
                   std::vector<std::size_t> numbers, ReplicaPolicy policy, const Stream& stream)
    : problem_(problem),
      strategy_(strategy_of(problem, tensors)),
      problems_(std::move(tensors)),
      numbers_(std::move(numbers)),
      policy_(policy),
      stream_(stream),
      link_{context,
            context.topology(),
            tensors_,
            problem.options,
            context.next_plan(),
            owner,
            context.tag(context.plans()),
            [this](const auto& sources, const auto& targets) { return plan_messages(sources, targets); }},
      order_(link_.topology, context.size(), strategy_.on_node != nullptr),
      reads_(problems_.size()),
      writes_(problems_.size()),
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
  set_layouts();
}

void Exchange::set_layouts() {
  const Index rank = link_.rank();
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const TensorProblem& tensor = problems_[t];
    tensors_[t]->source = local_layout(tensor.source, tensor.source_array, rank, "source");
    tensors_[t]->target = local_layout(tensor.target, tensor.target_array, rank, "target");
  }
}

void Exchange::set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets) {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    problems_[t].source_array = (gathers() ? targets : sources)[numbers_[t]];
    problems_[t].target_array = targets[numbers_[t]];
  }
  set_layouts();
  const std::vector<Layouts> in_c_order(problems_.size());
  const Messages messages = plan_messages(in_c_order, in_c_order);
  for (const Route& route : routes_) route.transport->replan(route.filter.of(messages));
}

Messages Exchange::plan_messages(const std::vector<Layouts>& sources, const std::vector<Layouts>& targets) const {
  const Index rank = link_.rank();
  Messages messages;
  messages.self.peer = static_cast<int>(rank);
  std::map<Index, PeerMessage> sent, received;
  const auto add = [](PeerMessage& to, std::size_t tensor, const Message& from) {
    to.summand = from.turn;
    for (const StridedBlock& block : from.blocks) to.blocks.push_back({static_cast<int>(tensor), block});
  };
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const TensorProblem& tensor = problems_[t];
    Layouts source_layouts = sources[t], target_layouts = targets[t];
    source_layouts[rank] = tensors_[t]->source;
    target_layouts[rank] = tensors_[t]->target;
    const RankSchedule schedule =
        make_schedule(tensor.source, tensor.target, maps_[t], rank, true, source_layouts, target_layouts, policy_);
    for (const Message& message : schedule.sends) add(sent[message.peer], t, message);
    for (const Message& message : schedule.receives) add(received[message.peer], t, message);
    if (schedule.self.count > 0) add(messages.self, t, schedule.self);
  }
  messages.self.nbytes = packed_bytes(messages.self.blocks, tensors_);
  const Index steps = link_.context.size() * 2 + 2;  // more than a MessageOrder has
  messages.self.step = messages.self.summand * steps * steps;
  for (const bool sends : {true, false}) {
    std::vector<PeerMessage>& list = sends ? messages.sends : messages.receives;
    for (auto& [peer, message] : sends ? sent : received) {
      message.peer = static_cast<int>(peer);
      message.nbytes = packed_bytes(message.blocks, tensors_);
      message.step = message.summand * steps * steps + (sends ? order_.step(rank, peer) : order_.step(peer, rank));
      list.push_back(std::move(message));
    }
    std::sort(list.begin(), list.end(), [](const PeerMessage& a, const PeerMessage& b) { return a.step < b.step; });
  }
  return messages;
}

void Exchange::make(bool node_memory) {
  routes_.clear();
  const std::vector<Layouts> in_c_order(problems_.size());
  const Messages messages = plan_messages(in_c_order, in_c_order);
  const auto mark = [](std::vector<char>& moves, const PeerMessage& message) {
    for (const Block& block : message.blocks) moves[static_cast<std::size_t>(block.tensor)] = 1;
  };
  mark(reads_, messages.self);
  mark(writes_, messages.self);
  for (const PeerMessage& message : messages.sends) mark(reads_, message);
  for (const PeerMessage& message : messages.receives) mark(writes_, message);
  const TensorProblem& first = problems_.front();
  bool separable = true;
  if (policy_.kind == ReplicaPolicy::all) {
    if (strategy_.sums && is_small_sum(first)) node_memory = false;
    separable =
        strategy_.on_node && node_memory && link_.topology.one_node() && !first.source.tiled() && !first.target.tiled();
  }
  const bool on_device =
      std::any_of(problems_.begin(), problems_.end(), [](const TensorProblem& tensor) { return tensor.on_device(); });
  if (!on_device) {
    routes_ = make_routes(strategy_, link_, messages, node_memory, separable);
    return;
  }
  if (!device_transports().make) throw Error("this library was built without support for arrays in device memory");
  for (auto& transport :
       device_transports().make(strategy_, link_, messages, problems_, stream_, node_memory, separable))
    routes_.push_back({std::move(transport)});
}

void Exchange::begin(const Transfer& transfer) {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const std::size_t number = numbers_[t];
    targets_[t] = static_cast<char*>(transfer.targets[number]);
    sources_[t] = gathers() ? targets_[t] : static_cast<const char*>(transfer.sources[number]);
  }
  transfer_ = &transfer;
  for (const Route& route : routes_) route.transport->begin({sources_.data(), targets_.data()}, transfer.pace);
}

bool Exchange::progress(bool with_mpi) {
  if (!transfer_) return false;
  bool any = false, all_done = true;
  for (const Route& route : routes_) {
    Transport& transport = *route.transport;
    if (!transport.done() && (with_mpi || transport.runs_without_mpi())) any |= transport.progress();
    all_done = all_done && transport.done();
  }
  if (!all_done || !with_mpi) return any;  // the next exchange may begin with MPI calls
  const Transfer& transfer = *std::exchange(transfer_, nullptr);
  if (next_) next_->begin(transfer);
  return true;
}

void Exchange::wake_partners() {
  if (!transfer_) return;
  for (const Route& route : routes_)
    if (!route.transport->done()) route.transport->wake_partners();
}

bool Exchange::waits_for_node() const {
  return !transfer_ || std::all_of(routes_.begin(), routes_.end(), [](const Route& route) {
    return route.transport->done() || route.transport->runs_without_mpi();
  });
}

std::string Exchange::missing_array(const void* const* sources, void* const* targets) const {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const std::size_t number = numbers_[t];
    const void *const target = targets[number], *const source = gathers() ? target : sources[number];
    const bool no_source = reads_[t] && !source;
    if (!no_source && (target || !writes_[t])) continue;
    const char* const side = no_source && !gathers() ? "source" : "target";
    return problem_.tensors.size() > 1 ? text(side, "[", number, "]") : side;
  }
  return "";
}

}  // namespace dace_redist
