// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/threaded.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<ThreadedPlan> threaded_strategy("Threaded");

}  // namespace dace_redist
