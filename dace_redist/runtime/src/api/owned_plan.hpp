// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A plan as the C interface, Python and generated programs hold it. Start reading at: OwnedPlan.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "plan/plan.hpp"

namespace dace_redist {

/// A wrong argument of a function of the library.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// A plan with at most one transfer under way, which advances in calls or in a thread. After an error the plan is of no
/// use any more.
class OwnedPlan {
 public:
  /// As Plan::make().
  OwnedPlan(MPI_Comm comm, const std::function<Problem()>& describe);
  /// A plan that failed, or whose transfer is under way, stays for good: MPI may still write to its buffers.
  ~OwnedPlan();
  OwnedPlan(const OwnedPlan&) = delete;
  OwnedPlan& operator=(const OwnedPlan&) = delete;

  Plan& plan() { return *plan_; }
  /// \throws ArgumentError if a transfer is under way.
  void check_idle() const;
  /// As Plan::set_stream().
  void set_stream(Stream stream);

  /// Moves the tensors. Under MPI_THREAD_SERIALIZED one thread at a time.
  /// \throws Error if the plan failed, or a transfer is under way; ArgumentError if an array is null of which elements
  ///     move: the other ranks learn of it.
  void run(const void* const* sources, void* const* targets);
  /// Starts to move the tensors; as run(). \param progress  a dr_progress.
  void start(const void* const* sources, void* const* targets, int progress);
  /// Advances the transfer. \return whether it is done. \throws what went wrong, also in calls after that.
  bool test();
  /// Waits for the transfer. \throws what went wrong.
  /// \param stream  of what uses the result; none: that of the start.
  void wait(std::optional<Stream> stream = {});

  /// Tells the other ranks that this rank cannot go on. Local.
  void fail(const std::string& message) noexcept;
  /// Whether the plan failed here, or on another rank as far as is known.
  bool has_failed() { return failed_ || plan_->has_failed(); }

 private:
  void check_ready(const void* const* sources, void* const* targets);
  void attempt(const std::function<void()>& work);
  void start_thread(const void* const* sources, void* const* targets);

  std::unique_ptr<Plan> plan_;
  Stream stream_ = nullptr;
  bool failed_ = false;

  // Of the transfer under way:
  bool started_ = false, done_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // not joinable: calls advance the transfer
  std::atomic<bool> thread_ended_{false};
};

}  // namespace dace_redist
