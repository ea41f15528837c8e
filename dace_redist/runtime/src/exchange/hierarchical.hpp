// Strategy Hierarchical: Shared inside a node, Pipelined between nodes, in one plan.
#pragma once

#include "node/node_aware_plan.hpp"

namespace dace_redist {

/// A node-aware plan whose messages may go anywhere.
class HierarchicalPlan final : public NodeAwarePlan {};

}  // namespace dace_redist
