// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How a rank waits for others.

#include <chrono>
#include <cstdint>

#include "core/long_wait.hpp"
#include "core/mpi.hpp"

namespace dace_redist {

/// Spins, then yields the core, then sleeps, so that oversubscribed ranks can run. Where many ranks share a core, they
/// sleep after one turn if a bell can wake them: ranks that look and yield take most turns from those that work.
///
/// Ranks with a core each spin first for longer than a partner that runs needs to answer: where another process uses
/// the core, a yield loses it for a time slice of some milliseconds. Then they sleep, if the core is shared so: one
/// that is woken runs before the slice ends, one that has yielded does not.
class Backoff {
 public:
  static constexpr long nap_nanoseconds = 500000;  ///< of a sleep that a bell ends

  /// \param ranks      that share this node: with more of them than cores, another rank needs this core.
  /// \param operation  outlives this object.
  Backoff(std::int64_t ranks, const JointOperation& operation);

  /// Threads whose turn in MPI it is not may take it meanwhile.
  /// \return whether this is one of the rounds, about every 64th, in which a waiting rank should look around.
  bool wait();
  /// Takes note of a sleep that no bell has ended. \return as wait().
  bool slept();
  void reset() {
    rounds_ = 0;
    next_look_ = {};
    long_wait_.reset();
  }
  /// Whether the rank should sleep if a bell can wake it.
  bool sleeps() const;
  /// Whether nothing has happened for so long that a partner may be blocked elsewhere.
  bool long_wait() const { return rounds_ >= blocked_from; }

 private:
  static constexpr int spinning_rounds = 1000, nap_rounds = 32, blocked_from = 96, sleeping_from = 20000;

  bool crowded_;
  int busy_rounds_, rounds_ = 0;
  std::chrono::steady_clock::time_point next_look_;  ///< whatever the number of rounds, as yields can take long
  LongWait long_wait_;
};

/// Completes a request and leaves the core to ranks that are late, which MPICH does not do in MPI_Wait.
/// \param ranks  that may share this node
void complete(MPI_Request& request, std::int64_t ranks, const JointOperation& operation);

/// Completes a request of all ranks of a communicator; needs no memory. \param kind, advice  as of JointOperation.
void complete(MPI_Request& request, MPI_Comm comm, const char* kind, const char* advice = "");

}  // namespace dace_redist
