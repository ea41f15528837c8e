// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The joined messages of a node: where their parts lie, and the ranks that carry them.

#include <vector>

#include "transport/transport.hpp"

namespace dace_redist {

/// A message between two ranks, as a part of a joined message.
struct JoinedPart {
  int sender = 0, receiver = 0;
  Index nbytes = 0;
  Index offset = 0;  ///< bytes, in the joined message
};

/// A joined message to or from another node. Its parts are sorted by sender, then receiver; those of each sender begin
/// at a cache line.
struct JoinedMessage {
  bool sent = false;              ///< by this node
  std::vector<JoinedPart> parts;  ///< of all ranks of this node
  std::vector<int> ranks;         ///< of this node, that have parts
  int carrier = 0;                ///< the one of them that sends or receives it
  int peer = 0;                   ///< the carrier on the other node
  Index nbytes = 0;
};

/// The joined messages in which ranks of this node have parts, equal on all of them. Those to the next node come first,
/// so that not all nodes begin with the same one. Both nodes know all parts of a message, and so choose its carriers
/// alike: in turn among the ranks that have parts, so that all ranks of a node send and receive. Collective over
/// `node`. \param messages  of this rank, to be joined.
std::vector<JoinedMessage> join_messages(const Link& link, MPI_Comm node, const Messages& messages);

}  // namespace dace_redist
