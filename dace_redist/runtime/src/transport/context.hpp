// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What the library keeps of a communicator of the program: one duplicate, where its ranks run, their shared memory.
/// Start reading at: Context.

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/backoff.hpp"
#include "core/mpi.hpp"
#include "layout/intervals.hpp"
#include "shm/peer_arena.hpp"

namespace dace_redist {

/// Where the ranks of a communicator run.
struct Topology {
  std::vector<int> node_of;       ///< [ranks] the lowest rank of each rank's node
  std::vector<int> partners;      ///< the ranks of this node, ascending, this one among them
  std::vector<Index> node_order;  ///< [ranks] place of each rank in an order that goes node after node

  bool one_node() const { return partners.size() == node_of.size(); }
  bool is_partner(int rank) const;
};

/// A failure of one rank in a transfer, as it tells the others. Of a rank that has left, the plan only.
struct Failure {
  std::int64_t plan = 0, rank = -1;
  std::array<char, 472> message{};
};

/// A window of a context, for one plan at a time.
struct PooledWindow {
  Window window;
  char* memory = nullptr;  ///< of this rank
  std::int64_t nbytes = 0;
};

/// The library's side of a communicator, made by the first plan on it, and an attribute of it from then on. All its
/// plans share one duplicate, or several once MPI's tags are used up, and tell their messages apart by tags. It lives
/// as long as the communicator or a plan.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Collective at the first call for a communicator.
  static std::shared_ptr<Context> of(MPI_Comm comm);

  ~Context() { close(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Frees all MPI objects; before MPI is finalized. After a failure the duplicate is kept: messages of the failed
  /// transfer may have no receiver, with which MPICH does not free a communicator. So are the windows, which ranks free
  /// together, and of which the failed plan of another rank may have one.
  void close();
  /// The communicator is freed. If only some ranks have plans left, the windows, which ranks free together, stay until
  /// MPI is finalized. Collective.
  void detach();

  MPI_Comm comm() const { return comm_.get(); }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }

  /// Nodes; where DACE_REDIST_NODE_RANKS is set, so many consecutive ranks of the world count as one. Local.
  const Topology& topology();

  /// An operation of all ranks that belongs to a plan.
  JointOperation operation(const char* kind, const char* label, std::int64_t plan) const {
    const std::uint64_t number = (number_ << 32) + static_cast<std::uint64_t>(plan);
    return {kind,
            label,
            "",
            number,
            world_ranks_[static_cast<std::size_t>(rank_)],
            &near_ranks_,
            near_ranks_.size() < world_ranks_.size()};
  }

  /// The arena of a rank of this node; null if the ranks of this node cannot map each other's memory.
  PeerArena* arena_of(int rank) const;
  /// Why no rank of the communicator uses node-shared memory; empty if they do.
  const std::string& no_shared_memory() const { return no_shared_memory_; }

  /// Numbers of plans: equal on all ranks, as making a plan is collective.
  std::int64_t next_plan() { return ++plans_; }
  std::int64_t plans() const { return plans_; }
  /// Takes over the number of plans that all ranks have agreed on.
  void set_plans(std::int64_t plans) { plans_ = plans; }
  /// Equal on all ranks of this communicator, different from all others that share a node with it.
  std::uint64_t number() const { return number_; }

  /// Makes another duplicate for the messages of the plans to come when few tags are left. Collective.
  void renew_tags();
  /// The duplicate for the messages of a new plan, and the first of the tags that the plan may use in it.
  MPI_Comm message_comm() const { return duplicates_.empty() ? comm() : duplicates_.back().get(); }
  int tag(std::int64_t plan) const;
  static constexpr int tags_of_plan = 4;

  /// A communicator of the ranks of this node, for use while a plan is made. Collective.
  MPI_Comm node_comm();

  /// A window that no plan uses, with at least `nbytes` of memory on this rank. Collective. Other plans may have it
  /// when the caller drops it, which is local.
  std::shared_ptr<PooledWindow> take_window(std::int64_t nbytes);

  /// Tells all ranks that a transfer of a plan has failed here, unless another rank has told them so. Local. Each rank
  /// tells two others as soon as it learns of it: so all that look know after few steps, and those whose messages would
  /// come by way of one that does not look hear from this rank.
  void report_failure(std::int64_t plan, const std::string& message) noexcept;
  /// Tells ranks that this one has left a transfer that failed, and uses their arrays no more, nor does MPI for it.
  /// Local.
  void report_leaving(std::int64_t plan, const std::vector<int>& ranks);
  /// Whether a rank has left, as far as failure_of() has found out.
  bool has_left(std::int64_t plan, int rank) const { return left_.count({plan, rank}) > 0; }
  /// \throws Error if a plan has failed on another rank, as far as is known.
  void check_failures(std::int64_t plan);
  /// A failure of a plan on another rank, of those that have arrived; null if there is none.
  const Failure* failure_of(std::int64_t plan);

 private:
  explicit Context(MPI_Comm comm);
  Communicator find_nodes();
  void map_partners(MPI_Comm node);
  void tell(const Failure& failure, std::int64_t first, std::int64_t last);
  void send(const Failure& notice, std::size_t nbytes, const std::vector<int>& ranks);

  static constexpr int failure_tag = 0, first_plan_tag = 1;

  std::shared_ptr<Context> self_;  // of a freed communicator with windows: until MPI is finalized
  Communicator comm_;
  int rank_ = 0;
  std::vector<int> world_ranks_, node_of_;          // [ranks]
  std::map<int, Topology> topologies_;              // by DACE_REDIST_NODE_RANKS
  std::vector<std::shared_ptr<PeerArena>> arenas_;  // [partners] of the machine's node
  std::vector<int> partners_, near_ranks_;          // [partners] ranks here, and in the world
  std::string no_shared_memory_;
  std::uint64_t number_ = 0;
  std::int64_t plans_ = 0, first_ = 0, max_plans_ = 1;  // first_: the last one before those of the duplicate at hand
  std::vector<Communicator> duplicates_;                // further ones, for messages
  std::map<int, Communicator> node_comms_;              // by DACE_REDIST_NODE_RANKS
  std::vector<std::shared_ptr<PooledWindow>> windows_;  // in an order that is equal on all ranks
  bool failed_ = false;                                 // a transfer on some rank
  std::mutex failures_guard_;                           // transfers may run in threads
  std::map<std::int64_t, Failure> failures_;            // by plan
  std::set<std::pair<std::int64_t, int>> left_;         // plans, and ranks that have left them
  std::list<std::pair<Failure, std::vector<MPI_Request>>> failures_sent_;  // under way
};

/// Environment variable: so many consecutive ranks of MPI_COMM_WORLD count as a node, where they share one. Tries on
/// one machine what happens between nodes.
inline constexpr const char* node_ranks_variable = "DACE_REDIST_NODE_RANKS";

/// The largest number of ranks that count as a node; 0: all that share it.
/// \throws Error if the environment variable is anything else than such a number.
int max_node_ranks();

}  // namespace dace_redist
