// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy Hierarchical: Shared inside a node, Pipelined between nodes, in one plan.

#include "node/node_aware_plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// A node-aware plan whose messages may go anywhere.
class HierarchicalPlan final : public NodeAwarePlan {};

static const RegisteredStrategy<HierarchicalPlan> hierarchical_strategy("Hierarchical", OnNode::through_memory);

}  // namespace dace_redist
