// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy RMA: packed messages are put into a window of their receivers.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3 (there for one pair of ranks: a window
/// per pair, made while running, deadlocks in a whole redistribution; here one window is made with the plan).

#include <memory>

#include "transport/transport.hpp"

namespace dace_redist {

/// Packs each message, puts it, and unpacks from the window. Making it is collective; the window is freed with the
/// communicator of the program, so that freeing a plan is local.
std::unique_ptr<Transport> make_put(const Link& link, Messages messages);

}  // namespace dace_redist
