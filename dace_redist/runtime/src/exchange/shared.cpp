// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/shared.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<SharedPlan> shared_strategy("Shared");

}  // namespace dace_redist
