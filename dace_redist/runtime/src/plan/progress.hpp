// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// All transfers that this process has started. Start reading at: Progress.

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/backoff.hpp"

namespace dace_redist {

class Arena;
class Plan;

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
  const Arena* served_ = nullptr;  // whose bell a service thread waits for
};

}  // namespace dace_redist
