// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How a rank waits for others of its node without keeping them from what they do.

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>

#include "core/mpi.hpp"
#include "trace/trace.hpp"

namespace dace_redist {

/// Gives the core away, ever longer, while a rank waits for another that may need this core to go on. Now and then it
/// calls MPI, too: the other rank may first have to complete a message of the program that this rank has begun, and MPI
/// may move messages only while it is called.
class Backoff {
 public:
  /// \param ranks  that share this node: with more of them than cores, somebody else has work for this core.
  /// \param comm   a private communicator.
  Backoff(std::size_t ranks, MPI_Comm comm) : comm_(comm), busy_rounds_(ranks > cores() ? 0 : 32) {}

  void wait() {
    ++rounds_;
    if (rounds_ % rounds_between_calls == 0 || rounds_ >= yielding_rounds) call_mpi();
    if (rounds_ < busy_rounds_) return;
    const trace::Span span("wait");
    if (rounds_ < yielding_rounds) {
      sched_yield();
      return;
    }
    const timespec nap{0, nap_nanoseconds};
    nanosleep(&nap, nullptr);
  }
  void reset() { rounds_ = 0; }

 private:
  static std::size_t cores() {
    static const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? static_cast<std::size_t>(online) : 1;
  }

  void call_mpi() const {
    int found = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  static constexpr int rounds_between_calls = 64;
  static constexpr int yielding_rounds = 20000;
  static constexpr long nap_nanoseconds = 50000;
  MPI_Comm comm_;
  int busy_rounds_, rounds_ = 0;
};

}  // namespace dace_redist
