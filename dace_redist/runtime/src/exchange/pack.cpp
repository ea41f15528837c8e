// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/pack.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<PackPlan> pack_strategy("Pack");

}  // namespace dace_redist
