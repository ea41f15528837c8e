// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Reduces partial results between ranks of one node, in one exchange.

#include "node/node_aware_plan.hpp"

namespace dace_redist {

/// A plan whose messages are partial results of ReplicaPolicy::all. All its ranks share a node, and each of them holds at
/// most one cell of the source and one of the target.
class NodeReductionPlan final : public NodeAwarePlan {
 public:
  /// Whether the plan can be run: there is node-shared memory. The same on all ranks.
  using NodeAwarePlan::uses_node_memory;

 private:
  void prepare() override {
    reduction_.set(description().operation, element_bytes());
    NodeAwarePlan::prepare();
  }
  const ReductionSteps* reduction() const override { return &reduction_; }

  ReductionSteps reduction_;
};

}  // namespace dace_redist
