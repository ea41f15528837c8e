// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy Shared: ranks of one node copy straight between each other's memory.

#include "node/node_aware_plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// A node-aware plan that refuses to leave the node.
class SharedPlan final : public NodeAwarePlan {
 private:
  void check_crossing(int here, int there) const override {
    throw Error(text("strategy Shared moves between ranks of one node, but ranks ", here, " and ", there,
                     " are on different nodes; take Hierarchical"));
  }
};

static const RegisteredStrategy<SharedPlan> shared_strategy("Shared", OnNode::through_memory);

}  // namespace dace_redist
