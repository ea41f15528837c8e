// SPDX-License-Identifier: BSD-3-Clause
#include "exchange/datatype.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

static const RegisteredStrategy<DatatypePlan> datatype_strategy("Datatype");

}  // namespace dace_redist
