// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A redistribution ready to run: a list of transports. Start reading at: Plan.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layout/replica_policy.hpp"
#include "plan/problem.hpp"
#include "plan/strategies.hpp"

namespace dace_redist {

/// Makes the transports of tensors with arrays in a device's memory; set by the device room.
struct DeviceTransports {
  std::vector<std::unique_ptr<Transport>> (*make)(const Strategy& strategy, const Link& link, Messages messages,
                                                  const std::vector<TensorProblem>& tensors, const Stream& stream,
                                                  bool node_memory, bool separable) = nullptr;
};
DeviceTransports& device_transports();

/// Moves the tensors of one exchange by the transports of one strategy. Transfers of an exchange do not overlap.
class Exchange {
 public:
  /// Where the exchange finds an array: a source or a target of the plan.
  struct ArrayOfPlan {
    std::size_t tensor;
    bool target;
  };

  /// \param owner    number of the plan.
  /// \param tensors  their arrays are those of `sources` and `targets`.
  Exchange(Context& context, std::int64_t owner, const Problem& problem, std::vector<TensorProblem> tensors,
           ReplicaPolicy policy, std::vector<ArrayOfPlan> sources, std::vector<ArrayOfPlan> targets,
           const Stream& stream);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Plans the messages and makes the transports. Local; may be repeated without node-shared memory.
  void make(bool node_memory);
  /// Collective.
  void connect();
  /// Takes other local arrays. Local.
  void set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets);

  void begin(const void* const* sources, void* const* targets, Pace pace);
  bool progress();
  bool progress_without_mpi();
  bool done() const;
  void wake_partners();
  /// Whether all that is left are messages of the node.
  bool waits_for_node() const;

  /// The first of the plan's arrays that is null although elements of it move, such as `source[2]`; else empty.
  std::string missing_array(const void* const* sources, void* const* targets, bool several) const;
  /// Ranks of this node, with this one.
  std::size_t node_ranks() const { return topology_.partners.size(); }

 private:
  Messages plan_messages(const std::vector<Layouts>& sources, const std::vector<Layouts>& targets) const;
  void set_layouts();

  Context& context_;
  const Problem& problem_;
  const Strategy& strategy_;
  const Topology topology_;
  std::vector<TensorProblem> problems_;
  std::vector<IndexMap> maps_;  // [tensors]
  ReplicaPolicy policy_;
  std::vector<ArrayOfPlan> source_arrays_, target_arrays_;
  const Stream& stream_;
  MessageOrder order_;
  std::int64_t number_, owner_;
  Tensors tensors_;
  std::vector<char> reads_, writes_;  // [tensors] whether elements move out of, or into, this rank's array
  std::vector<std::unique_ptr<Transport>> transports_;

  // Of the transfer at hand:
  std::vector<const char*> sources_;
  std::vector<char*> targets_;
};

/// A redistribution ready to run, any number of times.
class Plan {
 public:
  /// Makes a plan. Collective over `comm`.
  /// \param describe  called once on each rank; what it throws on one rank is an error on all.
  /// \throws Error on every rank if a rank cannot make it, or if the ranks disagree. On the rank that fails, the
  ///     exception that it met.
  static std::unique_ptr<Plan> make(MPI_Comm comm, const std::function<Problem()>& describe);

  /// Waits for no other rank. A plan that failed, or whose transfer is under way, must be leaked instead: MPI may still
  /// write to its buffers.
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Takes other local arrays from now on: shapes and strides may differ. After an error the plan keeps the arrays that
  /// it had. Local.
  void set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets);

  /// The caller's stream of the device: its earlier work comes before a transfer, its later work finds the result.
  void set_stream(Stream stream) { stream_ = stream; }

  /// \return the first array that is null although elements of it move, "source" or "target", of several tensors with
  /// its number; else nothing.
  std::string missing_array(const void* const* sources, void* const* targets) const;

  /// Moves the tensors. Collective over the ranks that have a part in it.
  void run(const void* const* sources, void* const* targets);

  /// Starts to move the tensors; waits for no other rank, unless MPI's one-sided operations do.
  void start(const void* const* sources, void* const* targets);
  /// Advances all transfers of this process that were started. \return whether this one is done.
  bool test();
  /// Waits for the transfer that was started; advances all others meanwhile.
  void wait();

  /// Tells the other ranks that this rank cannot go on: their transfers of this plan end with an error. Local.
  void fail(const std::string& message) noexcept;

  /// Whether a transfer failed here, or on another rank as far as is known.
  bool has_failed() { return failed_ || context_->failure_of(number_); }

  const Problem& problem() const { return problem_; }
  int rank() const { return context_->rank(); }

  /// For the progress of all transfers of the process:
  bool progress();
  bool progress_without_mpi();
  bool done() const;

 private:
  /// Exchanges one after another: of partial results, the reduction, then the distribution among target replicas.
  struct Chain {
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::size_t at_hand = 0;
  };

  explicit Plan(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  void make_chains();
  void begin(const void* const* sources, void* const* targets, Pace pace);
  void wait_until_done(bool started);
  bool advance();
  void wake_partners();
  bool waits_for_node() const;
  template <class Visit>
  void each_exchange(const Visit& visit) const;

  std::shared_ptr<Context> context_;
  Problem problem_;
  std::int64_t number_ = 0;
  Stream stream_ = nullptr;
  std::vector<Chain> chains_;

  // Of the transfer at hand:
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  Pace pace_ = Pace::attended;
  std::exception_ptr failure_;  // met while others were waited for
  std::atomic<bool> failed_{false};
};

}  // namespace dace_redist
