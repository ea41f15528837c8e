// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "plan/plan.hpp"

namespace dace_redist {
namespace {

/// The operation on sums of the target's type that move on. They may travel in the wire type if that is of their kind.
/// Where it is that of all elements, the results of factors and reductions do not: their replicas are to be equal.
ElementOperation moving(const ElementOperation& operation) {
  const bool computed = operation.reduction != Reduction::none || operation.alpha != 1.0 || operation.beta != 0.0;
  ElementOperation moved{operation.target, operation.target};
  if (element_info(operation.wire).kind == element_info(operation.target).kind &&
      !(computed && operation.wire_within_nodes))
    moved.wire = operation.wire;
  return moved;
}

/// The operation on results that move on to other replicas: in their last type, if they are to be rounded to it.
ElementOperation forwarding(const TensorProblem& tensor) {
  ElementOperation moved = moving(tensor.operation);
  if (tensor.rounded_to == ElementType::opaque) return moved;
  if (moved.wire == ElementType::opaque || element_bytes_of(moved.wire) > element_bytes_of(tensor.rounded_to)) {
    moved.wire = tensor.rounded_to;
    moved.wire_within_nodes = true;
  }
  return moved;
}

bool accumulates(const ElementOperation& operation) {
  return operation.accumulate != ElementType::opaque && operation.accumulate != operation.target;
}

/// The elements of the target that a tensor moves to, from the same place.
TensorProblem within_target(const TensorProblem& tensor) {
  TensorProblem within{tensor.target, tensor.target, tensor.target_bytes()};
  within.index_map = IndexMap(tensor.index_map, tensor.source, tensor.target).within_target();
  within.source_memory = within.target_memory = tensor.target_memory;
  return within;
}

}  // namespace

/// Memory for this rank's part of a distribution.
std::shared_ptr<Buffer> Plan::buffer_of(const Distribution& distribution, Index element_bytes) const {
  return std::make_shared<Buffer>(checked_product(distribution.local_shape(rank()), "block") * element_bytes);
}

void Plan::add_exchange(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy) {
  exchanges_.push_back(std::make_unique<Exchange>(*context_, number_, problem_, std::move(tensors), std::move(numbers),
                                                  policy, stream_));
}

/// Adds an exchange that begins when the last one is done.
void Plan::add_next(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy) {
  Exchange& last = *exchanges_.back();
  add_exchange(std::move(tensors), std::move(numbers), policy);
  last.set_next(*exchanges_.back());
}

/// Tensors that are copied in main memory share an exchange. Partial results of each tensor have exchanges of their
/// own, and so has each tensor with an array on a device.
void Plan::make_exchanges() {
  std::vector<TensorProblem> copied;
  std::vector<std::size_t> numbers;
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    if (problem_.tensors[t].reduces()) {
      add_reduction(problem_.tensors[t], t);
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
    forwarded.push_back({tensor.source, tensor.target, tensor.target_bytes(), tensor.index_map, forwarding(tensor)});
    forwarded.back().target_buffer = tensor.target_buffer;
    their_numbers.push_back(numbers[t]);
  }
  for (const auto kind : {ReplicaPolicy::between_nodes, ReplicaPolicy::within_nodes}) {
    if (forwarded.empty() || (kind == ReplicaPolicy::between_nodes && !shares)) continue;
    add_next(forwarded, their_numbers, {kind, false, sums});
  }
}

/// A reduction in steps, and the exchanges of the results among the replicas. The steps are the sums in each node, and
/// of these sums; of one that is reproducible, the levels of the tree of all partial results.
void Plan::add_steps(const TensorProblem& tensor, std::size_t number) {
  const std::vector<ReplicaPolicy> steps = steps_of_sums(tensor.source.replicas(), tensor.operation.reproducible);
  TensorProblem step = tensor;
  for (const ReplicaPolicy& policy : steps) {
    const bool last = &policy == &steps.back();
    step.operation.beta = last ? tensor.operation.beta : 0;
    step.target_buffer = last ? tensor.target_buffer : buffer_of(tensor.source, tensor.target_bytes());
    &policy == &steps.front() ? add_exchange({step}, {number}, policy) : add_next({step}, {number}, policy);
    if (last) break;
    step.operation = moving(tensor.operation);
    step.operation.reduction = tensor.operation.reduction;
    step.element_bytes = tensor.target_bytes();
    step.source_buffer = step.target_buffer;
  }
  add_forwarding({step}, {number}, true);
}

/// A reduction into a buffer, in a type of its own and without margins, and then the move of its result.
void Plan::add_buffered(const TensorProblem& tensor, std::size_t number) {
  TensorProblem reduced = tensor;
  reduced.target = tensor.target.without_margins();
  ElementOperation& operation = reduced.operation;
  if (accumulates(operation)) operation.target = operation.accumulate;
  operation.accumulate = ElementType::opaque;
  operation.beta = 0;
  TensorProblem stored = within_target(reduced);
  stored.target = tensor.target;
  stored.operation = {operation.target, tensor.operation.target, 1.0, tensor.operation.beta};
  const auto [from, to] = std::pair(element_info(operation.target), element_info(tensor.operation.target));
  if (from.kind == to.kind && to.kind >= ElementKind::real && to.nbytes < from.nbytes)
    reduced.rounded_to = tensor.operation.target;
  stored.source_buffer = reduced.target_buffer = buffer_of(reduced.target, reduced.target_bytes());
  add_reduction(reduced, number);
  add_next({stored}, {number}, {});
}

/// A reduction, in which each target replica may get a slice only, and then the exchange of the slices among the
/// replicas.
void Plan::add_reduction(const TensorProblem& tensor, std::size_t number) {
  const ElementOperation& operation = tensor.operation;
  const Index result_bytes =
      tensor.rounded_to == ElementType::opaque ? tensor.target_bytes() : element_bytes_of(tensor.rounded_to);
  const Index sliced_bytes = result_bytes <= tensor.element_bytes ? result_bytes : 0;
  const bool at_once = node_memory_ && find_strategy(problem_.strategy).on_node &&
                       Exchange::reduces_at_once(context_->topology(), tensor);
  // MPI would bring an element to a buffer of a step once more for each margin, and each box, that it is in
  const bool repeats =
      (operation.reproducible || !node_memory_) && (tensor.target.has_margins() || tensor.target.overlaps());
  const bool in_steps = !tensor.on_device() && !(repeats && tensor.target.boxed()) &&
                        (operation.reproducible ? !at_once : knows_nodes() && tensor.source.blocked());
  if (accumulates(operation) || (in_steps && repeats)) return add_buffered(tensor, number);
  if (in_steps) return add_steps(tensor, number);
  const bool scatter = scatters_target(tensor.source, tensor.target, sliced_bytes);
  add_exchange({tensor}, {number}, {ReplicaPolicy::all, scatter, false, operation.reproducible});
  if (!scatter) return;
  TensorProblem slices = within_target(tensor);
  slices.operation = forwarding(tensor);
  slices.target_buffer = tensor.target_buffer;
  add_next({slices}, {number}, {ReplicaPolicy::allgather});
}

}  // namespace dace_redist
