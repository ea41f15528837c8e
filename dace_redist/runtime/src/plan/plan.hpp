// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A redistribution ready to run: a list of transports. Start reading at: Plan.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "layout/schedule.hpp"
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

/// This rank's arrays in a transfer of a plan, [tensors of the plan].
struct Transfer {
  std::vector<const void*> sources;
  std::vector<void*> targets;
  Pace pace = Pace::attended;
};

/// Moves tensors of a plan by the transports of one strategy. Transfers of an exchange do not overlap.
class Exchange {
 public:
  /// \param owner    number of the plan.
  /// \param numbers  of the tensors, in the plan.
  /// \param policy   with ReplicaPolicy::allgather the targets of the plan are the sources, too.
  Exchange(Context& context, std::int64_t owner, const Problem& problem, std::vector<TensorProblem> tensors,
           std::vector<std::size_t> numbers, ReplicaPolicy policy, const Stream& stream);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Plans the messages and makes the transports. Local; may be repeated without node-shared memory.
  void make(bool node_memory);
  const std::vector<Route>& routes() const { return routes_; }
  /// Takes other local arrays, [tensors of the plan]. Local.
  void set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets);
  /// The exchange that begins when this one is done.
  void set_next(Exchange* next) { next_ = next; }
  /// Whether it gathers slices of the plan's targets; begins when the exchange that reduces them is done.
  bool gathers() const { return policy_.kind == ReplicaPolicy::allgather; }

  /// \param transfer  must outlive the transfer.
  void begin(const Transfer& transfer);
  /// Does what can be done, without MPI if asked so. \return whether that was anything.
  bool progress(bool with_mpi);
  bool done() const { return !transfer_; }
  void wake_partners();
  /// Whether all that is left are messages of the node.
  bool waits_for_node() const;

  /// The first of the plan's arrays that is null although elements of it move, such as `source[2]`; else empty.
  std::string missing_array(const void* const* sources, void* const* targets) const;
  /// Ranks of this node, with this one.
  std::int64_t node_ranks() const { return static_cast<std::int64_t>(link_.topology.partners.size()); }

 private:
  Messages plan_messages(const std::vector<Layouts>& sources, const std::vector<Layouts>& targets) const;
  void set_layouts();

  const Problem& problem_;
  const Strategy& strategy_;
  std::vector<TensorProblem> problems_;
  std::vector<std::size_t> numbers_;  // [tensors]
  std::vector<IndexMap> maps_;        // [tensors]
  ReplicaPolicy policy_;
  const Stream& stream_;
  Tensors tensors_;
  const Link link_;  // without the part of the messages of a transport
  MessageOrder order_;
  std::vector<char> reads_, writes_;  // [tensors] whether elements move out of, or into, this rank's array
  std::vector<Route> routes_;
  Exchange* next_ = nullptr;

  // Of the transfer at hand:
  const Transfer* transfer_ = nullptr;
  std::vector<const char*> sources_;
  std::vector<char*> targets_;
};

class Plan;

/// Deletes a plan. One that failed, or whose transfer is under way, stays for good: MPI may still write to its buffers.
struct PlanDeleter {
  void operator()(Plan* plan) const;
};
using PlanPointer = std::unique_ptr<Plan, PlanDeleter>;

/// A redistribution ready to run, any number of times; one transfer at a time. After an error in a transfer it is of no
/// use any more.
class Plan {
 public:
  /// Makes a plan. Collective over `comm`.
  /// \param describe  called once on each rank; what it throws on one rank is an error on all.
  /// \throws Error on every rank if a rank cannot make it, or if the ranks disagree. On the rank that fails, the
  ///     exception that it met.
  static PlanPointer make(MPI_Comm comm, const std::function<Problem()>& describe);

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Takes other local arrays from now on: shapes and strides may differ. Where one does not fit, the plan keeps the
  /// arrays that it had. Local.
  void set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets);

  /// The caller's stream of the device: its earlier work comes before a transfer, its later work finds the result.
  void set_stream(Stream stream) { stream_ = stream; }

  /// Moves the tensors. Collective over the ranks that have a part in it. Under MPI_THREAD_SERIALIZED one thread at a
  /// time.
  /// \throws Error if the plan failed, or a transfer is under way; ArgumentError if an array is null of which elements
  ///     move: the other ranks learn of it.
  void run(const void* const* sources, void* const* targets);

  /// Starts to move the tensors, as run(); waits for no other rank, unless MPI's one-sided operations do.
  void start(const void* const* sources, void* const* targets);
  /// As start(), but a thread moves the tensors, and then calls `finish`. \throws ArgumentError if MPI does not support
  ///     MPI_THREAD_MULTIPLE.
  void start_thread(const void* const* sources, void* const* targets, const std::function<void()>& finish);
  /// Advances all transfers of this process that were started. \return whether this one is done.
  bool test();
  /// Waits for the transfer that was started; advances all others meanwhile. \throws what went wrong, also if test()
  ///     threw it before.
  /// \param stream  of what uses the result; none: that of the start.
  void wait(std::optional<Stream> stream = {});
  /// \throws ArgumentError if a transfer is under way.
  void check_idle() const;

  /// Tells the other ranks that this rank cannot go on: their transfers of this plan end with an error. Local.
  void fail(const std::string& message) noexcept;

  /// Runs `work` of a transfer. What it throws ends the transfer, and the other ranks learn of it.
  template <class Work>
  void or_fail(const Work& work) {
    if (const std::exception_ptr thrown = caught(work)) end(thrown);
  }

  /// Whether a transfer failed here, or on another rank as far as is known.
  bool has_failed() { return failed_ || (look_is_due() && context_->failure_of(number_)); }

  /// Whether this is the communicator of the plan, and not another one with a recycled handle. Collective if it is not.
  bool is_on(MPI_Comm comm) const;
  const Problem& problem() const { return problem_; }
  Stream stream() const { return stream_; }
  int rank() const { return context_->rank(); }

  /// For the progress of all transfers of the process: does what can be done now, without MPI if asked so. What is
  /// thrown ends the transfer, and is kept for its wait. \return whether that was anything.
  bool progress(bool with_mpi = true);
  bool done() const;

 private:
  friend PlanDeleter;
  Plan(MPI_Comm comm, std::shared_ptr<Context> context) : comm_(comm), context_(std::move(context)) {}
  void prepare(const std::function<Problem()>& describe, std::uint64_t& hash, std::string& shortage);
  void connect();
  void make_exchanges();
  void add_reduction(std::size_t number);
  void add_exchange(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy);
  bool look_is_due();
  void check_ready(const void* const* sources, void* const* targets);
  void run_to_end(const void* const* sources, void* const* targets);
  void begin(const void* const* sources, void* const* targets, Pace pace);
  void wait_until_done(bool started);
  [[noreturn]] void end(const std::exception_ptr& thrown);

  MPI_Comm comm_;
  std::shared_ptr<Context> context_;
  Problem problem_;
  std::int64_t number_ = 0;
  Stream stream_ = nullptr;
  std::vector<std::unique_ptr<Exchange>> exchanges_;

  std::atomic<bool> failed_{false};
  std::int64_t looked_ = 0;  // tick of the last look for failures

  // Of the transfer at hand:
  Transfer transfer_;
  bool started_ = false;        // and not waited for
  std::exception_ptr failure_;  // what ended it
  std::thread thread_;          // that moves the tensors; not joinable: none
  std::atomic<bool> thread_ended_{false};
};

}  // namespace dace_redist
