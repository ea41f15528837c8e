// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A part of a plan: tensors that move by the transports of one strategy.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "layout/schedule.hpp"
#include "plan/problem.hpp"
#include "plan/strategies.hpp"

namespace dace_redist {

/// Makes the transport of a tensor with an array in a device's memory; defined by the device room.
std::unique_ptr<Transport> make_device_transport(const Strategy& strategy, const Link& link, Messages messages,
                                                 const std::vector<TensorProblem>& tensors, const Stream& stream,
                                                 bool node_memory);

/// Moves tensors of a plan. Transfers of an exchange do not overlap.
class Exchange {
 public:
  /// \param owner    number of the plan.
  /// \param problem  of the plan, whose local arrays are those of the exchange.
  /// \param numbers  of the tensors, in the plan.
  /// \param policy   with ReplicaPolicy::allgather, and those that forward, the targets of the plan are the sources,
  /// too.
  Exchange(Context& context, std::int64_t owner, const Problem& problem, std::vector<TensorProblem> tensors,
           std::vector<std::size_t> numbers, ReplicaPolicy policy, const Stream& stream);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Whether the ranks reduce all partial results of a tensor in one exchange, if they map each other's memory.
  static bool reduces_at_once(const Topology& topology, const TensorProblem& tensor) {
    return topology.one_node() && tensor.source.blocked() && tensor.target.blocked();
  }

  /// Plans the messages and makes the transports. Local; may be repeated with other arguments.
  /// \param joins_short  as of make_routes(); set for a strategy that joins any number of them.
  void make(bool node_memory, bool joins_short);
  /// Whether it should be made again, on all ranks, with `joins_short`.
  bool has_many_short() const { return has_many_short_; }
  const Topology& topology() const { return link_.topology; }
  const std::vector<Route>& routes() const { return routes_; }
  /// Takes over local arrays of the problem that have changed. Local.
  void replan();
  /// The exchange that begins when this one is done.
  void set_next(Exchange& next) {
    next_ = &next;
    next.follows_ = true;
  }
  /// Whether it begins when another exchange is done.
  bool follows() const { return follows_; }

  /// Sets the arrays of the next transfer, [tensors of the plan]. \return the first of them that is null although
  /// elements of it move, such as `source[2]`; else empty.
  std::string set_arrays(const void* const* sources, void* const* targets);
  void begin(Pace pace);
  /// Does what can be done, without MPI if asked so. \return whether that was anything.
  bool progress(bool with_mpi);
  bool done() const { return !under_way_; }
  bool posted() const;
  /// As Transport::leave().
  Leaving leave();
  bool at_rest() const;
  /// Adds the ranks with which this one exchanges messages.
  void add_peers(std::set<int>& peers) const;
  void wake_partners();
  /// As Transport::awaited_rings().
  std::uint32_t awaited_rings() const;
  /// Whether all that is left are messages of the node.
  bool waits_for_node() const;

 private:
  Messages plan_messages(std::vector<Layouts> sources = {}, std::vector<Layouts> targets = {}) const;
  /// Whether its sources are the plan's targets.
  bool gathers() const { return policy_.kind == ReplicaPolicy::allgather || policy_.forwards(); }
  void set_layouts();
  Index step(Index source, Index target) const;
  bool runs_without_mpi() const;
  void convert(bool packs) const;

  const Problem& problem_;
  const Strategy& strategy_;
  std::vector<TensorProblem> problems_;
  std::vector<std::size_t> numbers_;  // [tensors]
  std::vector<IndexMap> maps_;        // [tensors]
  ReplicaPolicy policy_;
  const Stream& stream_;
  Tensors tensors_;
  const Link link_;                   // without the part of the messages of a transport
  std::vector<char> reads_, writes_;  // [tensors] whether elements move out of, or into, this rank's array
  bool unpacks_ = false;              // whether MPI unpacks a target
  bool has_many_short_ = false;
  std::vector<Route> routes_;
  Exchange* next_ = nullptr;
  bool follows_ = false;

  // Of the transfer at hand:
  bool under_way_ = false;
  Pace pace_ = Pace::attended;
  std::vector<const char*> sources_;  // [tensors]
  std::vector<char*> targets_;        // [tensors]
};

}  // namespace dace_redist
