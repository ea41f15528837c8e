// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Where the parts of joined messages lie, and the ranks that carry them: agreed on once.

#include <array>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace dace_redist {

/// Where a rank's parts begin in a joined message, multiples of this: no two ranks write to one cache line.

/// A message of this rank to or from a rank of another node, as a part of a joined message.
struct JoinedPart {
  int peer = 0;
  Index nbytes = 0;
  Index offset = 0;  ///< bytes, in the joined message
};

/// The end of a joined message on this node.
struct JoinedEnd {
  std::vector<int> ranks;    ///< that have parts in it, ascending
  int carrier = 0;           ///< the one of them that sends or receives it
  int peer = 0;              ///< the carrier on the other node
  Index nbytes = 0;          ///< of the whole message
  Index offset = 0;          ///< bytes, of the parts that this rank packs
  Index buffer_offset = -1;  ///< bytes, in the carrier's arena
};

/// The joined messages in which this rank has parts. A joined message holds what each of its ranks sends, one rank
/// after another, from a cache line on; of a rank, a part for each receiver.
///
/// The carriers are chosen among the ranks that have parts in a message, in turn, so that all ranks of a node send and
/// receive.
class JoinedRoutes {
 public:
  enum Direction : std::size_t { sending, receiving };
  static constexpr std::array<Direction, 2> directions{sending, receiving};

  /// Agrees with the other ranks. Collective.
  /// \param sends, receives  this rank's messages that are to be joined.
  JoinedRoutes(const Link& link, MPI_Comm node, std::vector<JoinedPart> sends, std::vector<JoinedPart> receives);

  const std::vector<JoinedPart>& parts(Direction direction) const { return parts_[direction]; }
  /// By the lowest rank of the other node.
  std::map<int, JoinedEnd>& ends(Direction direction) { return ends_[direction]; }
  /// The lowest rank of the node that a rank is on.
  int node_of(int rank) const { return link_.topology.node_of[static_cast<std::size_t>(rank)]; }
  int rank() const { return link_.rank(); }

  /// Tells the ranks of this node where the buffers lie that this rank allocated. Collective.
  void exchange_offsets();

 private:
  void find_ends();
  void choose_carriers(Direction direction);
  void tell_peers();
  std::vector<std::vector<Index>> gather(const std::vector<Index>& mine) const;

  const Link& link_;
  MPI_Comm node_;
  std::array<std::vector<JoinedPart>, 2> parts_;
  std::array<std::map<int, JoinedEnd>, 2> ends_;
};

}  // namespace dace_redist
