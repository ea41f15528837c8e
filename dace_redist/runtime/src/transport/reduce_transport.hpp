// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy SumReplicas between nodes: MPI's reductions add the partial sums of replicas.

#include <memory>

#include "transport/transport.hpp"

namespace dace_redist {

/// Adds partial sums where the ranks that hold a cell of the source share the cell in the target: each of them owns a
/// part, and together they own all of it (a reduce-scatter), or each of them owns all of it (an allreduce). Making it
/// is collective. \throws Error in connect() on every rank if the messages are others.
std::unique_ptr<Transport> make_reduced(const Link& link, Messages messages);

}  // namespace dace_redist
