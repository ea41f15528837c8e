// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A plan that knows which ranks share a node: their messages go through memory, all others over MPI.

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "core/backoff.hpp"
#include "exchange/chunk_pipeline.hpp"
#include "node/joined_messages.hpp"
#include "node/node_exchange.hpp"
#include "plan/plan.hpp"

namespace dace_redist {

/// Starts what goes to other nodes, then moves what stays on the node, and looks after the network in between. What
/// goes to other nodes goes in chunks, a message for each pair of ranks, or joined with what others send there.
///
/// Where node-shared memory cannot be had, every message goes over MPI; the first plan of a process in which that
/// happens says so on standard error.
class NodeAwarePlan : public Plan {
 protected:
  /// Whether messages within the node go through memory.
  bool uses_node_memory() const { return !partners_.empty(); }

  void prepare() override {
    if (!connected_) return;
    if (!partners_.empty()) prepare_node();
    prepare_network();
  }

 private:
  /// \throws Error if ranks of different nodes may not have messages for each other.
  virtual void check_crossing(int /*here*/, int /*there*/) const {}
  /// Most bytes of a message to another node that is joined with others; the same on every rank.
  virtual Index joined_limit() const { return 0; }
  /// What is done with messages that are partial results; null: they are not.
  virtual const ReductionSteps* reduction() const { return nullptr; }

  void prepare_node() {
    const auto planner = [this](const Layouts& sources, const Layouts& targets) {
      RankSchedule schedule = schedule_with(sources, targets);
      keep(schedule.sends, true);
      keep(schedule.receives, true);
      return schedule;
    };
    node_.prepare(planner, source_layout(), target_layout(), steps(), reduction(), options());
  }

  void prepare_network() {
    std::vector<Message> sends = sends_in_order(), receives = receives_in_order();
    keep(sends, false);
    keep(receives, false);
    const auto split = [](std::vector<Message>& messages, const auto& joined) {
      const auto middle = std::stable_partition(messages.begin(), messages.end(),
                                                [&](const Message& message) { return !joined(message.peer); });
      std::vector<Message> taken(std::make_move_iterator(middle), std::make_move_iterator(messages.end()));
      messages.erase(middle, messages.end());
      return taken;
    };
    joined_.prepare(split(sends, [this](Index peer) { return joined_.sends(peer); }),
                    split(receives, [this](Index peer) { return joined_.receives(peer); }), steps());
    network_.prepare(comm(), tag, sends, receives, steps(), options());
  }

  bool is_partner(Index rank) const {
    return std::binary_search(partners_.begin(), partners_.end(), static_cast<int>(rank));
  }

  /// Node after node: in a round each node sends to one and receives from one. In a round of ranks alone, ranks of one
  /// node begin with different nodes.
  Index round(Index source, Index target) const override {
    if (places_.empty()) return Plan::round(source, target);
    const RankPlace &from = places_.at(source), &to = places_.at(target);
    return (to.node - from.node + nodes_) % nodes_ * most_ranks_ +
           (to.number - from.number + most_ranks_) % most_ranks_;
  }

  /// Takes note of where this rank and those it has messages for, or from, are.
  void find_places(const std::vector<int>& node_of) {
    std::map<int, RankPlace> next;  // by lowest rank of a node: place of the next rank there
    std::vector<RankPlace> places;
    for (const int node : node_of) {
      RankPlace& place = next.insert({node, {static_cast<Index>(next.size()), 0}}).first->second;
      places.push_back(place);
      most_ranks_ = std::max(most_ranks_, ++place.number);
    }
    nodes_ = static_cast<Index>(next.size());
    places_[rank()] = places[static_cast<std::size_t>(rank())];
    for (const std::vector<Message>* messages : {&schedule().sends, &schedule().receives})
      for (const Message& message : *messages) places_[message.peer] = places[static_cast<std::size_t>(message.peer)];
  }

  /// Keeps the messages within the node, or those that leave it.
  void keep(std::vector<Message>& messages, bool within) const {
    const auto other = [&](const Message& message) { return is_partner(message.peer) != within; };
    messages.erase(std::remove_if(messages.begin(), messages.end(), other), messages.end());
  }

  void connect() override {
    const std::vector<int> ranks_here = partners_ = ranks_of_node(comm());
    all_or_none(comm(), [this] {
      for (const std::vector<Message>* messages : {&schedule().sends, &schedule().receives})
        for (const Message& message : *messages)
          if (!is_partner(message.peer)) check_crossing(rank(), static_cast<int>(message.peer));
    });
    const bool shared = works_on_node([this] {
                          prepare_node();
                          node_.allocate_rings();
                        }) &&
                        connects_on_node();
    if (!shared) partners_.clear();
    connected_ = true;
    if (static_cast<int>(ranks_here.size()) < comm_size(comm())) {  // several nodes, for all ranks
      const std::vector<int> node_of = lowest_ranks_of_nodes(comm(), ranks_here);
      find_places(node_of);
      if (shared && joined_limit() > 0) connect_joined(node_of);
    }
    all_or_none(comm(), [this] { prepare_network(); });
  }

  /// Finds out which messages are joined, and where they meet. Collective.
  void connect_joined(const std::vector<int>& node_of) {
    const auto parts = [this](const std::vector<Message>& messages) {
      std::vector<JoinedPart> joined;
      for (const Message& message : messages) {
        const Index nbytes = message.count * steps().message_bytes();
        if (is_partner(message.peer) || nbytes > joined_limit()) continue;
        joined.push_back({static_cast<int>(message.peer), nbytes});
      }
      return joined;
    };
    JoinedRoutes routes(comm(), tag, node_of, partners_, parts(schedule().sends), parts(schedule().receives));
    if (!works_on_node([&] { joined_.allocate(routes); })) return joined_.disconnect();
    const std::map<int, SegmentEndpoint> segments = routes.exchange_endpoints(joined_.endpoint());
    const Index piece_bytes = std::min(options().chunk_bytes, options().max_message_bytes);
    const auto connect = [&] { joined_.connect(comm(), joined_tag, routes, segments, piece_bytes); };
    if (!works_on_node(connect)) joined_.disconnect();
  }

  /// Exchanges the endpoints with the partners and connects with them.
  /// \return false on every rank if a rank cannot. Collective.
  bool connects_on_node() {
    std::vector<Endpoint> to_receivers(node_.send_count()), of_receivers(node_.send_count());
    std::vector<Endpoint> to_senders(node_.receive_count()), of_senders(node_.receive_count());
    std::vector<MPI_Request> requests;
    const auto bytes = [](Endpoint& endpoint) { return reinterpret_cast<char*>(&endpoint); };
    constexpr Index nbytes = sizeof(Endpoint);
    for (std::size_t r = 0; r < of_senders.size(); ++r)
      post_receive(bytes(of_senders[r]), nbytes, node_.receive_peer(r), requests);
    for (std::size_t s = 0; s < of_receivers.size(); ++s)
      post_receive(bytes(of_receivers[s]), nbytes, node_.send_peer(s), requests);
    for (std::size_t s = 0; s < to_receivers.size(); ++s) {
      to_receivers[s] = node_.endpoint_for_receiver(s);
      post_send(bytes(to_receivers[s]), nbytes, node_.send_peer(s), requests);
    }
    for (std::size_t r = 0; r < to_senders.size(); ++r) {
      to_senders[r] = node_.endpoint_for_sender();
      post_send(bytes(to_senders[r]), nbytes, node_.receive_peer(r), requests);
    }
    wait_all(requests);
    return works_on_node([&] { node_.connect(of_receivers, of_senders); });
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    for (Backoff backoff(partners_.size(), comm()); !finished_on_node();) {
      if (advances())
        backoff.reset();
      else
        backoff.wait();
    }
    while (!network_.finished()) network_.wait();
  }

  /// Whether nothing is left that waits for a rank of this node.
  bool finished_on_node() const { return (partners_.empty() || node_.finished()) && joined_.finished(); }

  /// Does what can be done now; false if that was nothing.
  bool advances() {
    bool any = !partners_.empty() && !node_.finished() && node_.progress();
    any |= !joined_.finished() && joined_.progress();
    any |= !network_.finished() && network_.progress();
    return any;
  }

  void begin(const char* source, char* target) override {
    network_.begin(source, target);
    joined_.begin(source, target);
    if (partners_.empty())
      copy_self(source, target);
    else
      node_.begin(source, target);
  }

  bool advance() override {
    while (advances()) {
    }
    return finished_on_node() && network_.finished();
  }

  /// Where a rank is.
  struct RankPlace {
    Index node = 0, number = 0;  // of the rank on its node
  };

  std::map<Index, RankPlace> places_;  // by rank
  Index nodes_ = 1, most_ranks_ = 1;   // of a node
  std::vector<int> partners_;          // ranks of this node, sorted; none: all messages go over MPI
  bool connected_ = false;
  NodeExchange node_;
  ChunkPipeline network_;
  JoinedMessages joined_;

  static constexpr int joined_tag = tag + 1;  // beside chunks of the same pair of ranks
};

}  // namespace dace_redist
