// SPDX-License-Identifier: BSD-3-Clause
#include "plan/exchange.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace dace_redist {
namespace {

/// The address that the blocks of a side count from. Null for no array: a small displacement is none from MPI_BOTTOM.
template <class Byte>
Byte* moved_bytes(Byte* array, const MessageSide& side) {
  constexpr std::uintptr_t first_page = 4096;
  const auto start = reinterpret_cast<std::uintptr_t>(array) + static_cast<std::uintptr_t>(side.start);
  if (!array && start < first_page) return nullptr;
  if (!side.packed) return reinterpret_cast<Byte*>(start);
  side.packed->set_array(array);
  return side.packed->buffer();
}

}  // namespace

Exchange::Exchange(Context& context, std::int64_t owner, const Problem& problem, std::vector<TensorProblem> tensors,
                   std::vector<std::size_t> numbers, ReplicaPolicy policy, const Stream& stream)
    : problem_(problem),
      strategy_(find_strategy(problem.strategy)),
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
            context.message_comm(),
            context.tag(context.plans()),
            [this](const auto& sources, const auto& targets) { return plan_messages(sources, targets); }},
      reads_(problems_.size()),
      writes_(problems_.size()),
      sources_(problems_.size()),
      targets_(problems_.size()) {
  for (const TensorProblem& tensor : problems_) {
    unpacks_ = unpacks_ || (tensor.messages && tensor.messages->target.packed);
    maps_.emplace_back(tensor.index_map, tensor.source, tensor.target);
    Tensor& made = *tensors_.emplace_back(std::make_unique<Tensor>());
    made.operation = tensor.operation;
    made.reduces = policy_.reduces();
    const auto set = [&](TensorSteps& steps, ElementType wire) {
      ElementOperation operation = tensor.operation;
      operation.wire = wire;
      steps.steps.set(operation, tensor.element_bytes);
      if (made.reduces) steps.reduction.set(operation, tensor.element_bytes);
    };
    const auto [wire, everywhere] = std::pair(tensor.operation.wire, tensor.operation.wire_within_nodes);
    set(made, everywhere ? wire : ElementType::opaque);
    set(made.between_nodes, wire);
  }
  set_layouts();
}

void Exchange::set_layouts() {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const TensorProblem& whole = problem_.tensors[numbers_[t]];
    Tensor& tensor = *tensors_[t];
    tensor.target = problems_[t].target_buffer
                        ? LocalLayout{}
                        : local_layout(whole.target, whole.target_array, whole.element_bytes, link_.rank(), "target");
    tensor.source = problems_[t].source_buffer ? LocalLayout{}
                    : gathers()
                        ? tensor.target
                        : local_layout(whole.source, whole.source_array, whole.element_bytes, link_.rank(), "source");
  }
}

void Exchange::replan() {
  set_layouts();
  const Messages messages = plan_messages();
  for (const Route& route : routes_) route.transport->replan(part_of(messages, route.takes));
}

/// The place of a message in the order of messages. At each step every rank sends to one rank and receives from one, as
/// far as it has messages, so that no target is hit by all ranks at once.
Index Exchange::step(Index source, Index target) const {
  const std::vector<Index>& order = link_.topology.node_order;
  const Index steps = order[static_cast<std::size_t>(target)] - order[static_cast<std::size_t>(source)];
  return (steps + link_.context.size()) % link_.context.size();
}

/// \param sources, targets  layouts of the arrays of other ranks; empty: in C order.
Messages Exchange::plan_messages(std::vector<Layouts> sources, std::vector<Layouts> targets) const {
  sources.resize(problems_.size());
  targets.resize(problems_.size());
  const Index rank = link_.rank();
  Messages messages;
  std::map<Index, PeerMessage> sent, received;
  const auto add = [](PeerMessage& to, std::size_t tensor, const Message& from) {
    to.summand = from.summand;
    to.blocks.append(from.blocks, static_cast<int>(tensor));
  };
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const TensorProblem& tensor = problems_[t];
    sources[t][rank] = tensors_[t]->source;
    targets[t][rank] = tensors_[t]->target;
    const bool no_replicas = tensor.source.replicas() == 1 && tensor.target.replicas() == 1;
    const ReplicaPolicy policy = no_replicas ? ReplicaPolicy{} : policy_;
    RankSchedule made;
    if (!tensor.messages)
      made = make_schedule({tensor.source, tensor.target, maps_[t], rank, policy, true, &sources[t], &targets[t],
                            &link_.topology.node_of});
    const RankSchedule& schedule = tensor.messages ? tensor.messages->schedule : made;
    for (const Message& message : schedule.sends) add(sent[message.peer], t, message);
    for (const Message& message : schedule.receives) add(received[message.peer], t, message);
    if (schedule.self.count > 0) add(messages.self, t, schedule.self);
  }
  const auto finish = [&](PeerMessage& message, Index peer, Index step) {
    message.peer = static_cast<int>(peer);
    message.crosses_nodes = peer != rank && !link_.topology.is_partner(message.peer);
    message.nbytes = packed_bytes(message, tensors_);
    message.step = message.summand * link_.context.size() + step;
  };
  finish(messages.self, rank, 0);
  for (const bool sends : {true, false}) {
    std::vector<PeerMessage>& list = sends ? messages.sends : messages.receives;
    for (auto& [peer, message] : sends ? sent : received) {
      finish(message, peer, sends ? step(rank, peer) : step(peer, rank));
      list.push_back(std::move(message));
    }
    std::sort(list.begin(), list.end(), [](const PeerMessage& a, const PeerMessage& b) { return a.step < b.step; });
  }
  return messages;
}

void Exchange::make(bool node_memory, bool joins_short) {
  routes_.clear();
  const Messages messages = plan_messages();
  const auto mark = [](std::vector<char>& moves, const PeerMessage& message) {
    for (auto block = message.blocks.begin(); block != message.blocks.end(); ++block)
      moves[static_cast<std::size_t>(block.tensor())] = 1;
  };
  mark(reads_, messages.self);
  mark(writes_, messages.self);
  for (const PeerMessage& message : messages.sends) mark(reads_, message);
  for (const PeerMessage& message : messages.receives) mark(writes_, message);
  if (std::any_of(problems_.begin(), problems_.end(), [](const TensorProblem& one) { return one.on_device(); })) {
    routes_.push_back({make_device_transport(strategy_, link_, messages, problems_, stream_, node_memory), everything});
    return;
  }
  if (policy_.kind == ReplicaPolicy::all)
    node_memory = node_memory && reduces_at_once(link_.topology, problems_.front());
  else if (policy_.kind == ReplicaPolicy::sum_nodes || policy_.in_order)
    node_memory = false;  // one transport reduces partial results, in order
  const Index join_bytes = link_.options.join_bytes;
  joins_short = joins_short || join_bytes > 0;
  has_many_short_ =
      node_memory && join_bytes < 0 && !joins_short && dace_redist::has_many_short(strategy_, link_, messages);
  routes_ = make_routes(strategy_, link_, messages, node_memory, joins_short);
}

std::string Exchange::set_arrays(const void* const* sources, void* const* targets) {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const std::size_t number = numbers_[t];
    const auto& [source_buffer, target_buffer] = std::tie(problems_[t].source_buffer, problems_[t].target_buffer);
    targets_[t] = target_buffer ? target_buffer->at(0) : static_cast<char*>(targets[number]);
    sources_[t] = source_buffer ? source_buffer->at(0)
                  : gathers()   ? targets_[t]
                                : static_cast<const char*>(sources[number]);
    if (const GivenMessages* const given = problems_[t].messages.get()) {
      sources_[t] = moved_bytes(sources_[t], given->source);
      targets_[t] = moved_bytes(targets_[t], given->target);
    }
    const bool no_source = reads_[t] && !sources_[t];
    if (!no_source && (targets_[t] || !writes_[t])) continue;
    const char* const side = no_source && !gathers() ? "source" : "target";
    return problem_.tensors.size() > 1 ? text(side, "[", number, "]") : side;
  }
  return "";
}

/// Has MPI pack, before a transfer, or unpack, after it, the arrays of which only MPI knows the layout.
void Exchange::convert(bool packs) const {
  for (std::size_t t = 0; t < problems_.size(); ++t) {
    const GivenMessages* const given = problems_[t].messages.get();
    if (given && packs && given->source.packed) given->source.packed->pack();
    if (given && !packs && given->target.packed) given->target.packed->unpack();
  }
}

void Exchange::begin(Pace pace) {
  under_way_ = true;
  pace_ = pace;
  convert(true);
  for (const Route& route : routes_) route.transport->begin({sources_.data(), targets_.data()}, pace);
}

bool Exchange::progress(bool with_mpi) {
  if (!under_way_) return false;
  bool any = false, all_done = true;
  for (const auto& [transport, takes] : routes_) {
    if (!transport->done() && (with_mpi || transport->runs_without_mpi())) any |= transport->progress();
    all_done = all_done && transport->done();
  }
  if (!all_done || (!with_mpi && (unpacks_ || (next_ && !next_->runs_without_mpi())))) return any;
  convert(false);
  under_way_ = false;
  if (next_) next_->begin(pace_);
  return true;
}

bool Exchange::posted() const {
  return std::all_of(routes_.begin(), routes_.end(), [](const Route& route) { return route.transport->posted(); });
}

Leaving Exchange::leave() {
  Leaving all = Leaving::left;
  for (const Route& route : routes_) all = std::min(all, route.transport->leave());
  return all;
}

bool Exchange::at_rest() const {
  return std::all_of(routes_.begin(), routes_.end(), [](const Route& route) { return route.transport->at_rest(); });
}

void Exchange::add_peers(std::set<int>& peers) const {
  const Messages messages = plan_messages();
  for (const auto* const list : {&messages.sends, &messages.receives})
    for (const PeerMessage& message : *list) peers.insert(message.peer);
}

void Exchange::wake_partners() {
  for (const Route& route : routes_)
    if (under_way_ && !route.transport->done()) route.transport->wake_partners();
}

bool Exchange::runs_without_mpi() const {
  return std::all_of(routes_.begin(), routes_.end(),
                     [](const Route& route) { return route.transport->runs_without_mpi(); });
}

std::uint32_t Exchange::awaited_rings() const {
  std::uint32_t awaited = UINT32_MAX;
  for (const Route& route : routes_)
    if (under_way_ && !route.transport->done()) awaited = std::min(awaited, route.transport->awaited_rings());
  return awaited;
}

bool Exchange::waits_for_node() const {
  return !under_way_ || std::all_of(routes_.begin(), routes_.end(), [](const Route& route) {
    return route.transport->done() || route.transport->runs_without_mpi();
  });
}

}  // namespace dace_redist
