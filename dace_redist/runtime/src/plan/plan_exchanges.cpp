// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "plan/plan.hpp"

namespace dace_redist {
void Plan::add_exchange(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy) {
  exchanges_.push_back(std::make_unique<Exchange>(*context_, number_, problem_, std::move(tensors), std::move(numbers),
                                                  policy, stream_));
}

/// Tensors that are copied in main memory share an exchange. Partial results of each tensor have exchanges of their
/// own, and so has each tensor with an array on a device.
void Plan::make_exchanges() {
  std::vector<TensorProblem> copied;
  std::vector<std::size_t> numbers;
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    if (problem_.tensors[t].reduces()) {
      add_reduction(t);
      continue;
    }
    TensorProblem tensor = problem_.tensors[t];
    tensor.operation.reduction = Reduction::none;  // of a single partial result
    if (tensor.on_device()) {
      add_exchange({std::move(tensor)}, {t}, {});
      continue;
    }
    copied.push_back(std::move(tensor));
    numbers.push_back(t);
  }
  if (copied.empty()) return;
  if (!knows_nodes()) return add_exchange(std::move(copied), std::move(numbers), {});
  add_exchange(copied, numbers, {ReplicaPolicy::to_nodes});
  add_forwarding(copied, numbers, false);
}

/// Whether replicas and partial results move by nodes: there are several, some have several ranks, and the strategy
/// tells messages between nodes from others.
bool Plan::knows_nodes() const {
  const Topology& topology = context_->topology();
  if (topology.one_node() || !find_strategy(problem_.strategy).on_node) return false;
  for (std::size_t rank = 0; rank < topology.node_of.size(); ++rank)
    if (topology.node_of[rank] != static_cast<int>(rank)) return true;
  return false;
}

/// The exchanges after the last one, which brings replicas to nodes: between the nodes, and within them.
void Plan::add_forwarding(const std::vector<TensorProblem>& tensors, const std::vector<std::size_t>& numbers,
                          bool sums) {
  std::vector<TensorProblem> forwarded;
  std::vector<std::size_t> their_numbers;
  bool shares = sums;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const TensorProblem& tensor = tensors[t];
    if (tensor.messages || tensor.target.replicas() == 1) continue;
    shares = shares || shares_between_nodes(tensor.source, tensor.target, context_->topology().node_of);
    forwarded.push_back({tensor.source, tensor.target, tensor.target_bytes(), tensor.index_map});
    their_numbers.push_back(numbers[t]);
  }
  for (const auto kind : {ReplicaPolicy::between_nodes, ReplicaPolicy::within_nodes}) {
    if (forwarded.empty() || (kind == ReplicaPolicy::between_nodes && !shares)) continue;
    Exchange& last = *exchanges_.back();
    add_exchange(forwarded, their_numbers, {kind, false, sums});
    last.set_next(*exchanges_.back());
  }
}

/// A reduction between nodes: in each node, of these sums, and the exchanges of the results among the replicas.
void Plan::add_sums_of_nodes(std::size_t number) {
  TensorProblem on_node = problem_.tensors[number], between = on_node;
  ElementOperation& operation = between.operation;
  operation = {operation.target, operation.target, 1.0, operation.beta, false, operation.reduction};
  between.element_bytes = on_node.target_bytes();
  on_node.operation.beta = 0;
  add_exchange({on_node}, {number}, {ReplicaPolicy::sums_of_nodes, false, true});
  Exchange& sums = *exchanges_.back();
  add_exchange({between}, {number}, {ReplicaPolicy::sum_nodes, false, true});
  sums.set_next(*exchanges_.back());
  add_forwarding({between}, {number}, true);
}

/// A reduction, in which each target replica may get a slice only, and then the exchange of the slices among the
/// replicas.
void Plan::add_reduction(std::size_t number) {
  const TensorProblem& tensor = problem_.tensors[number];
  const Index target_bytes = tensor.target_bytes();
  const Index sliced_bytes = target_bytes <= tensor.element_bytes ? target_bytes : 0;
  if (knows_nodes() && !tensor.on_device() && tensor.source.blocked()) return add_sums_of_nodes(number);
  const bool scatter = scatters_target(tensor.source, tensor.target, sliced_bytes);
  add_exchange({tensor}, {number}, {ReplicaPolicy::all, scatter});
  if (!scatter) return;
  TensorProblem slices{tensor.target, tensor.target, target_bytes};
  slices.index_map = IndexMap(tensor.index_map, tensor.source, tensor.target).within_target();
  slices.source_memory = slices.target_memory = tensor.target_memory;
  Exchange& reduction = *exchanges_.back();
  add_exchange({slices}, {number}, {ReplicaPolicy::allgather});
  reduction.set_next(*exchanges_.back());
}

}  // namespace dace_redist
