// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans whose source, target, or both lie in a device's memory.

#include "plan/registry.hpp"

namespace dace_redist {

/// Makes a plan by the strategy of the description for arrays of which one at least lies on the device that is current
/// in the calling thread.
std::unique_ptr<Plan> make_device_plan(const Description& description, MPI_Comm comm);

/// Makes a plan of strategy NCCL. Collective, see Plan::make().
std::unique_ptr<Plan> make_nccl_plan(const Description& description, MPI_Comm comm);

}  // namespace dace_redist
