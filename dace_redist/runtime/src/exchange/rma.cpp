// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/rma.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<RMAPlan> rma_strategy("RMA");

}  // namespace dace_redist
