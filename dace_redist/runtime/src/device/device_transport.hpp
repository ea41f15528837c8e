// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The transports of a tensor whose source, target, or both lie in a device's memory: strategies Pack, Pipelined,
/// Shared, Hierarchical and NCCL.

#include <memory>

#include "plan/problem.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// Strategy NCCL: packed messages between devices, by NVIDIA's library.
std::unique_ptr<Transport> make_nccl(const Link& link, Messages messages, const TensorProblem& problem,
                                     const Stream& caller);

}  // namespace dace_redist
