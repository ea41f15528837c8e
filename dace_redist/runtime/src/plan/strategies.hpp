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
  MakeTransport between_nodes;  ///< all other messages
  MakeTransport short_between_nodes = nullptr;  ///< short messages between nodes; null: as all others
};

/// Adds a row, or replaces the row of the same name.
void add_strategy(const Strategy& strategy);

/// \throws Error if there is no strategy of that name; names those there are.
const Strategy& find_strategy(const std::string& name);

/// Whether a transport takes a message, also of the self copy.
using MessageFilter = std::function<bool(const PeerMessage&)>;

inline bool everything(const PeerMessage&) { return true; }

Messages part_of(const Messages& messages, const MessageFilter& takes);

/// A transport of an exchange, and the messages that it moves.
struct Route {
  std::unique_ptr<Transport> transport;
  MessageFilter takes;
};

/// Whether this rank has so many short messages between nodes that they are joined without option `join_bytes`.
bool has_many_short(const Strategy& strategy, const Link& link, const Messages& messages);

/// The transports of a strategy for messages of tensors in main memory, in the order in which they begin.
/// \param node_memory  whether messages may move through node-shared memory.
/// \param joins_short  whether short messages between nodes are joined: some rank has many of them.
/// \throws NoSharedMemory if node-shared memory is too short on this rank.
std::vector<Route> make_routes(const Strategy& strategy, const Link& link, const Messages& messages, bool node_memory,
                               bool joins_short);

}  // namespace dace_redist
