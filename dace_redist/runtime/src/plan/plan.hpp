// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A redistribution ready to run: a list of exchanges, each with a list of transports. Start reading at: Plan.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plan/exchange.hpp"
#include "plan/problem.hpp"
#include "plan/progress.hpp"

namespace dace_redist {

class Plan;

/// Deletes a plan. One whose transfer is under way stays for good: MPI may still write to its buffers. So does one that
/// failed while MPI sent its buffers to ranks that will not receive them, or before it was connected, and a forked
/// child's copy: memory and MPI objects of the plan are its parent's.
struct PlanDeleter {
  void operator()(Plan* plan) const;
};
using PlanPointer = std::unique_ptr<Plan, PlanDeleter>;

/// A redistribution ready to run, any number of times; one transfer at a time. After an error in a transfer it is of no
/// use any more.
///
/// A transfer that fails gives the arrays back, as one that is done. A rank that fails or learns of a failure stops,
/// marks its messages, and waits until the ranks that copy to or from its arrays have seen the mark, and until MPI has
/// completed or cancelled what it receives. Then it tells its peers, so that these stop waiting for what they sent. A
/// partner in the library stops within a piece. Only one that is not, and may use the arrays later, is waited for in
/// vain: the error says so.
///
/// Threads may run different plans at a time; under MPI_THREAD_SERIALIZED they take turns in MPI, and plans are made in
/// one order on all ranks. Of one plan, a function that is called while another thread is in one, or that does not fit
/// the state of the plan, throws ArgumentError and changes nothing.
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
  void set_stream(Stream stream);

  /// Moves the tensors. Collective over the ranks that have a part in it.
  /// \throws Error if the plan failed; ArgumentError if an array is null of which elements move: the other ranks learn
  ///     of it.
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
  bool has_failed() {
    const MpiTurn turn;
    return failed_ || (look_is_due() && context_->failure_of(number_));
  }

  /// Whether this is the communicator of the plan, and not another one with a recycled handle. Collective if it is not.
  bool is_on(MPI_Comm comm) const;
  const Problem& problem() const { return problem_; }
  Stream stream() const { return stream_; }
  int rank() const { return context_->rank(); }

  /// For the progress of all transfers of the process: does what can be done now, without MPI if asked so. What is
  /// thrown ends the transfer, and is kept for its wait. \return whether that was anything.
  bool progress(bool with_mpi = true);
  bool done() const {
    return failure_ || std::all_of(exchanges_.begin(), exchanges_.end(), [](const auto& one) { return one->done(); });
  }
  /// Whether a transfer that was started needs no further call to be posted to MPI.
  bool posted() const {
    return failure_ || std::all_of(exchanges_.begin(), exchanges_.end(), [](const auto& one) { return one->posted(); });
  }

 private:
  friend PlanDeleter;
  /// `busy`: a thread is in a function of the plan.
  enum class State { idle, started, busy };

  Plan(MPI_Comm comm, std::shared_ptr<Context> context) : comm_(comm), context_(std::move(context)) {}
  void prepare(const std::function<Problem()>& describe, std::string& facts, std::string& shortage);
  bool make_transports(bool node_memory, bool joins_short, std::string& shortage);
  void connect();
  bool has_many_short() const {
    return std::any_of(exchanges_.begin(), exchanges_.end(), [](const auto& one) { return one->has_many_short(); });
  }
  void make_exchanges();
  bool knows_nodes() const;
  void add_next(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy);
  void add_buffered(const TensorProblem& tensor, std::size_t number);
  void add_reduction(const TensorProblem& tensor, std::size_t number);
  void add_steps(const TensorProblem& tensor, std::size_t number);
  std::shared_ptr<Buffer> buffer_of(const Distribution& distribution, Index element_bytes) const;
  void add_forwarding(const std::vector<TensorProblem>& tensors, const std::vector<std::size_t>& numbers, bool sums);
  void add_exchange(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy);

  void enter(State expected);
  template <class Work>
  void use(State before, State after, State after_error, const Work& work);
  bool look_is_due();
  void report(const std::string& message) noexcept;
  bool leave();
  bool leave_in_time() noexcept;
  void take_arrays(const void* const* sources, void* const* targets);
  void begin(Pace pace);
  void run_to_end();
  Backoff backoff() const {
    return {static_cast<std::int64_t>(exchanges_.front()->topology().partners.size()), operation_};
  }
  void look_around(const Backoff& backoff);
  void wait_alone();
  void advance_until(bool Progress::Round::*so_far);
  /// Number of times that partners ring before something can be done.
  std::uint32_t awaited_rings() const {
    std::uint32_t awaited = UINT32_MAX;
    for (const auto& exchange : exchanges_) awaited = std::min(awaited, exchange->awaited_rings());
    return awaited;
  }
  [[noreturn]] void end(const std::exception_ptr& thrown);

  MPI_Comm comm_;
  std::shared_ptr<Context> context_;
  Problem problem_;
  std::int64_t number_ = 0;
  JointOperation operation_{};
  const int process_ = getpid();
  Stream stream_ = nullptr;
  bool node_memory_ = false;  // whether ranks of a node use it
  std::vector<std::unique_ptr<Exchange>> exchanges_;

  std::atomic<State> state_{State::idle};
  std::atomic<bool> failed_{false};
  bool tells_ = true, left_ = false;  // whether peers are to be told that this rank leaves; whether it has left
  std::int64_t looked_ = 0;           // tick of the last look for failures
  std::exception_ptr failure_;        // what ended the transfer at hand
  std::thread thread_;                // that moves the tensors; not joinable: none
  std::atomic<bool> thread_ended_{false};
};

}  // namespace dace_redist
