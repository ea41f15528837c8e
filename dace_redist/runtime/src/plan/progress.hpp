// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// All transfers that this process has started. Start reading at: Progress.

#include <cstddef>
#include <mutex>
#include <vector>

namespace dace_redist {

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

  /// Does what can be done of all transfers. A transfer that fails keeps its error for its own wait. \return whether
  /// that was anything.
  bool advance();
  /// As advance(). \return whether the transfer of `plan` is done.
  bool advance_until_done(Plan& plan, bool& any);

 private:
  void start_service_thread();
  void serve();

  std::mutex guard_;
  std::vector<Plan*> started_;
  int service_process_ = 0;  // process that has a service thread
};

}  // namespace dace_redist
