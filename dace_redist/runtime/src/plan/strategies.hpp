// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The strategies: which transport moves which messages. To add one, write a transport and add a row to the table in
/// strategies.cpp.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.hpp"

namespace dace_redist {

/// A row of the table.
struct Strategy {
  const char* name;
  MakeTransport on_node;        ///< messages within a node and the self copy; null: they move as all others
  MakeTransport between_nodes;  ///< all other messages; null: there may be none
  /// Messages of up to max_joined_bytes between nodes; null: as all others.
  MakeTransport short_between_nodes = nullptr;
  bool sums = false;  ///< partial results are reduced; by MPI between nodes, and where they are small
};

/// Adds a row, or replaces the row of the same name.
void add_strategy(const Strategy& strategy);

/// \throws Error if there is no strategy of that name; names those there are.
const Strategy& find_strategy(const std::string& name);

/// \throws Error if a message crosses nodes that the strategy cannot cross.
void check_nodes(const Strategy& strategy, const Link& link, const Messages& messages);

/// A part of the messages of an exchange; by default all of them.
struct MessageFilter {
  std::function<bool(const PeerMessage&)> takes = nullptr;  ///< null: all messages
  bool self = true;                                         ///< whether the self copy is among them

  Messages of(Messages messages) const;
};

/// A transport of an exchange, with the messages that it moves.
struct Route {
  std::unique_ptr<Transport> transport;
  MessageFilter filter{};
};

/// The transports of a strategy for messages of tensors in main memory, in the order in which they begin.
/// \param node_memory  whether messages may move through node-shared memory.
/// \param separable    whether each message may move by another transport; false for partial results of tiles, and
///     those that come from several nodes: one transport reduces them in order.
/// \throws Error if a message crosses nodes that the strategy cannot cross.
/// \throws NoSharedMemory if node-shared memory is too short on this rank.
std::vector<Route> make_routes(const Strategy& strategy, const Link& link, const Messages& messages, bool node_memory,
                               bool separable);

/// The step of a message: at each step every rank sends to one rank and receives from one, as far as it has messages,
/// so that no target is hit by all ranks at once. Node after node where there are several.
class MessageOrder {
 public:
  MessageOrder(const Topology& topology, int ranks, bool by_node);
  Index step(Index source, Index target) const;

 private:
  struct Place {
    Index node = 0, number = 0;  // number of the rank on its node
  };
  Index ranks_;
  std::vector<Place> places_;  // [ranks]; none: nodes do not matter
  Index nodes_ = 1, max_node_ranks_ = 1;
};

}  // namespace dace_redist
