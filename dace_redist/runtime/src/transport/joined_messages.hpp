// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages of the ranks of a node that are joined to one message per node. Start reading at: join_messages.

#include <cstdint>
#include <vector>

#include "transport/context.hpp"
#include "transport/message.hpp"

namespace dace_redist {

/// A message of this rank, as a part of a joined message.
struct JoinedPart {
  int peer;
  Index offset;  ///< bytes, in the joined message
};

/// A joined message to or from another node. Its parts are in the order of senders, then receivers; those of each
/// sender begin at a cache line.
struct JoinedMessage {
  bool sent;                      ///< by this node
  std::vector<JoinedPart> parts;  ///< of this rank
  std::uint64_t ranks;            ///< of this node that have parts
  int carrier;                    ///< the one of them that sends or receives it
  int peer;                       ///< the carrier on the other node
  Index nbytes;
};

/// The joined messages in which ranks of this node have parts, in one order on all of them. Those to the next node come
/// first, so that not all nodes begin with the same one. Both nodes of a message choose its carriers alike, in turn
/// among the ranks that have parts, so that all ranks of a node send and receive.
///
/// Memory: three numbers for each rank of the topology, and this rank's parts. Collective over `node`, the ranks of
/// this node in ascending order. \param messages  of this rank, to be joined.
std::vector<JoinedMessage> join_messages(const Topology& topology, int rank, MPI_Comm node, const Messages& messages);

}  // namespace dace_redist
