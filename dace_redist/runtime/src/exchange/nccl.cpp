// SPDX-License-Identifier: BSD-3-Clause
#include "device/nccl_plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<NcclPlan> nccl_strategy("NCCL", make_nccl_plan);

}  // namespace dace_redist
