// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Several tensors in one exchange.

#include <memory>

#include "plan/plan.hpp"

namespace dace_redist {

/// Makes a plan for `description.tensors`, whose arrays are in C order unless their descriptions say otherwise; the
/// rest of the description is that of the first one. Collective. Its run() takes arrays of addresses, one per tensor.
std::unique_ptr<Plan> make_joint_plan(const Description& description, MPI_Comm comm);

}  // namespace dace_redist
