// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// All transfers that this process has started, and how it waits for them. Start reading at: Progress.

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/mpi.hpp"

namespace dace_redist {

class Plan;

/// Spins, then yields the core, then sleeps, so that oversubscribed ranks can run. Where many ranks share a core, they
/// sleep after one turn if a bell can wake them: ranks that look and yield take most turns from those that work. So do,
/// after they have spun, ranks whose core another process uses: one that yields to it waits for the end of its time
/// slice, whatever its partners do, but one that is woken runs at once.
class Backoff {
 public:
  static constexpr long nap_nanoseconds = 500000;  ///< of a sleep that a bell ends

  /// \param ranks  that share this node: with more of them than cores, another rank needs this core.
  explicit Backoff(std::int64_t ranks);

  /// Threads whose turn in MPI it is not may take it meanwhile.
  /// \return whether this is one of the rounds, about every 64th, in which a waiting rank should look around.
  bool wait();
  /// Takes note of a sleep that no bell has ended. \return as wait().
  bool slept();
  void reset() { rounds_ = 0; }
  /// Whether the rank should sleep if a bell can wake it.
  bool sleeps() const;
  /// Whether nothing has happened for so long that a partner may be blocked elsewhere.
  bool long_wait() const { return rounds_ >= yielding_from + 64; }

 private:
  static constexpr int yielding_from = 32, sleeping_from = 20000;

  bool crowded_;
  int busy_rounds_, rounds_ = 0;
};

/// Completes a request and leaves the core to ranks that are late, which MPICH does not do in MPI_Wait.
/// \param ranks  that may share this node
void complete(MPI_Request& request, std::int64_t ranks);

/// Advances every transfer that was started and is not waited for, whichever of them a rank waits for: ranks may wait
/// in any order.
///
/// A rank that is blocked elsewhere, in MPI or in a computation, does not hold up partners of its node: a service
/// thread sleeps until a waiting partner rings the bell of this process's arena, and then does this rank's copies. The
/// thread makes no MPI calls.
class Progress {
 public:
  static Progress& instance();

  /// Adds a transfer; `begin` starts it. What `begin` throws leaves nothing behind.
  template <class Begin>
  void add(Plan& plan, const Begin& begin) {
    const std::lock_guard<std::mutex> locked(guard_);
    begin();
    started_.push_back(&plan);
    start_service_thread();
  }
  void remove(Plan& plan);
  /// Runs `work` while no transfer moves that was started.
  template <class Work>
  void hold(const Work& work) {
    const std::lock_guard<std::mutex> locked(guard_);
    work();
  }

  struct Round {
    bool any = false;                   ///< something was done
    bool done = false, posted = false;  ///< the awaited transfer is done, or posted
  };
  /// Does what can be done of all transfers. A transfer that fails keeps its error for its own wait.
  /// \param awaited  a transfer that was added, if one is waited for.
  Round advance(const Plan* awaited = nullptr);

 private:
  void start_service_thread();
  void serve();

  std::mutex guard_;
  std::vector<Plan*> started_;
  int service_process_ = 0;  // process that has a service thread
};

}  // namespace dace_redist
