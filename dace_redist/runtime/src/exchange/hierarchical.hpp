// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy Hierarchical: Shared inside a node, Pipelined between nodes, in one plan.

#include "node/node_aware_plan.hpp"

namespace dace_redist {

/// A node-aware plan whose messages may go anywhere.
class HierarchicalPlan final : public NodeAwarePlan {};

}  // namespace dace_redist
