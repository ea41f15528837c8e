// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/hierarchical.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<HierarchicalPlan> hierarchical_strategy("Hierarchical");

}  // namespace dace_redist
