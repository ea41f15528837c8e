// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The transports of arrays in main memory, for the table of strategies. Sources: docs/architecture.md.

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

/// Packs each message, puts it into a window of its receiver, and unpacks from there. Making it is collective; the
/// window is freed with the communicator of the program, so that freeing a plan is local. (Lundwall et al. make a
/// window for each pair of ranks while running, which deadlocks in a whole redistribution.)
std::unique_ptr<Transport> make_put(const Link& link, Messages messages);

/// Joins the short messages between two nodes in node-shared memory, sends each joined message once, and takes it apart
/// in node-shared memory of the receiving node (Bienz et al. gather them by messages on the node). Making it is
/// collective. Unattended transfers send each message on its own, as the rank that carries a joined message would have
/// to attend to it.
std::unique_ptr<Transport> make_joined(const Link& link, Messages messages);

/// The messages between ranks of one node, and the self copy: ranks copy between each other's memory. The sender of a
/// message chooses one of the protocols of docs/architecture.md anew in each transfer:
///
/// - push or pull where the sender reaches the targets, or the receiver the sources: in an arena, or mapped by XPMEM.
///   A large source that has short runs for each of several receivers is not pulled;
/// - read, of long runs, where the receiver does not reach the sources: if the sender could push, but has more to copy
///   than the receiver, and ranks do not share cores; else if that was measured to be faster than staging;
/// - staged in all other cases, and for short messages.
///
/// Partial results are pulled or staged; their receiver reduces them piece by piece, once all that belong to the same
/// elements are there.
///
/// Extra memory: a ring for each rank it sends to, of at most depth * slot_bytes, committed when it is used; shorter,
/// down to one slot each, where many rings would not fit the cache, and where messages are short.
///
/// \throws NoSharedMemory if there is too little node-shared memory.
std::unique_ptr<Transport> make_node(const Link& link, Messages messages);

/// There is no node-shared memory, or too little: all ranks move their messages in another way.
class NoSharedMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace dace_redist
