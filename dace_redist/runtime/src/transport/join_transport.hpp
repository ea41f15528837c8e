// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy Aggregated: the short messages between two nodes as one message.
/// Source: A. Bienz, W. Gropp, L. Olson, Reducing communication in algebraic multigrid with multi-step node aware
/// communication, IJHPCA 34(5), 2020 (there with messages on the node, here with copies).

#include <memory>

#include "transport/transport.hpp"

namespace dace_redist {

/// Joins messages in node-shared memory, sends each joined message once, and takes it apart in node-shared memory of
/// the receiving node. Making it is collective. Unattended transfers send each message on its own, as the rank that
/// carries a joined message would have to attend to it.
std::unique_ptr<Transport> make_joined(const Link& link, Messages messages);

}  // namespace dace_redist
