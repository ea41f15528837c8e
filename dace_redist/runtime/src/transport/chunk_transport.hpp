// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages over MPI in chunks: strategies Datatype, Pack, Threaded and Pipelined, and the messages of Hierarchical and
/// Aggregated between nodes.
/// Sources: Lundwall et al., Accelerating Redistribution of Tensors, section 3; T. Schneider, R. Gerstenberger,
/// T. Hoefler, Compiler transformed remote puts (LCPC 2013).

#include <memory>

#include "transport/transport.hpp"

namespace dace_redist {

/// Packs each message, sends it whole, and unpacks in order of arrival.
std::unique_ptr<Transport> make_packed(const Link& link, Messages messages);
/// As make_packed(), with the threads of OpenMP unless option `threads` says otherwise.
std::unique_ptr<Transport> make_threaded(const Link& link, Messages messages);
/// Sends and receives whole messages by MPI datatypes. A side on which elements are computed with, which MPI cannot do,
/// packs or unpacks instead.
std::unique_ptr<Transport> make_datatype(const Link& link, Messages messages);
/// Cuts messages into chunks that move through a ring of buffers, so that packing, sending, receiving and unpacking
/// overlap and the extra memory does not grow with the tensor.
std::unique_ptr<Transport> make_pipelined(const Link& link, Messages messages);

}  // namespace dace_redist
