// Strategy Hierarchical: Shared inside a node, Pipelined between nodes, in one plan.
#pragma once

#include "node/node_aware_plan.hpp"
#include "plan/slot.hpp"

namespace dace_redist {

/// A node-aware plan whose messages may go anywhere.
class HierarchicalPlan final : public NodeAwarePlan {};

/// What the node's `Hierarchical` implementation calls.
inline void exchange_hierarchical(Slot<HierarchicalPlan>& slot, const Arguments& arguments, const void* source,
                                  void* target) {
  slot.run(arguments, source, target);
}

}  // namespace dace_redist
