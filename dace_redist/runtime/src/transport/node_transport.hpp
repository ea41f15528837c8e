// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy Shared, and the messages of Hierarchical and Aggregated within a node: ranks copy between each other's
/// memory.

#include <memory>

#include "transport/transport.hpp"

namespace dace_redist {

/// The messages between ranks of one node, and the self copy. Each pair of ranks moves its message by one of four
/// protocols, which the sender chooses anew in each transfer:
///
/// - push: the targets lie in the receiver's arena; the sender copies into them;
/// - pull: the sources lie in the sender's arena, and have no short runs for each of several receivers; the receiver
///   copies out of them;
/// - read: the sources do not, all runs are long, and the targets do not either or their rank has less to copy than the
///   sender; the receiver has the kernel copy them out of the sender's memory;
/// - staged: in all other cases, and for short messages; the sender packs pieces into free slots of a ring in its
///   arena, the receiver unpacks them while they are in the cache.
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
