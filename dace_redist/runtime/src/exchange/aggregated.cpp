// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy Aggregated: Hierarchical, but short messages between two nodes go as one.

#include <algorithm>

#include "node/node_aware_plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// A node-aware plan that joins messages that are short, and no longer than a chunk.
class AggregatedPlan final : public NodeAwarePlan {
 private:
  Index joined_limit() const override { return std::min(options().chunk_bytes, most_joined_bytes); }
};

static const RegisteredStrategy<AggregatedPlan> aggregated_strategy("Aggregated", OnNode::through_memory);

}  // namespace dace_redist
