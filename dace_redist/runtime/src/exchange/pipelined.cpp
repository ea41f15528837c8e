// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/pipelined.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<PipelinedPlan> pipelined_strategy("Pipelined");

}  // namespace dace_redist
