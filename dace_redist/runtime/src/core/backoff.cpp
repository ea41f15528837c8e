// SPDX-License-Identifier: BSD-3-Clause
#include "core/backoff.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "core/machine.hpp"
#include "trace/trace.hpp"

namespace dace_redist {
namespace {

/// Rounds in which this process sleeps, until it yields again to see whether its core is still shared.
std::atomic<int> shared_core_rounds{0};

using Clock = std::chrono::steady_clock;

/// Yields the core, and takes note of whether another process used it. \return the time.
Clock::time_point yield_core() {
  constexpr std::chrono::microseconds min_slice(200);
  constexpr int rounds = 256;
  const Clock::time_point before = Clock::now();
  sched_yield();
  const Clock::time_point now = Clock::now();
  if (now - before > min_slice) shared_core_rounds.store(rounds, std::memory_order_relaxed);
  return now;
}

/// Whether the launcher says that all ranks of the world are on this node.
bool is_one_node() {
  for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* const ranks = std::getenv(name)) return std::atoi(ranks) == comm_size(MPI_COMM_WORLD);
  return false;
}

}  // namespace

Backoff::Backoff(std::int64_t ranks, const JointOperation& operation) : long_wait_(operation) {
  constexpr std::int64_t many_ranks = 8;  // on a core
  crowded_ = ranks > many_ranks * usable_cores();
  busy_rounds_ = ranks > usable_cores() ? 0 : spinning_rounds;
}

bool Backoff::sleeps() const {
  if (crowded_) return rounds_ > 0;
  if (busy_rounds_ == 0) return false;  // what used the core was a partner, most likely
  if (rounds_ <= busy_rounds_ || shared_core_rounds.load(std::memory_order_relaxed) <= 0) return false;
  shared_core_rounds.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool Backoff::wait() {
  const MpiPause others;
  constexpr int look_interval = 64;
  constexpr timespec nap{0, 50000};
  const bool looks = rounds_ % look_interval == look_interval - 1 || rounds_ >= sleeping_from;
  if (rounds_ < sleeping_from) ++rounds_;
  if (rounds_ <= busy_rounds_) return looks;
  const trace::Span span("wait");
  if (rounds_ < sleeping_from) {
    constexpr std::chrono::milliseconds look_period(5);  // a few yields of a core that others use
    const Clock::time_point now = yield_core();
    if (next_look_ == Clock::time_point()) next_look_ = now + look_period;
    if (now < next_look_) return looks;
    next_look_ = now + look_period;
    rounds_ = std::max(rounds_, +blocked_from);
  } else {
    nanosleep(&nap, nullptr);
  }
  long_wait_.look();
  return true;
}

bool Backoff::slept() {
  const MpiPause others;
  rounds_ = std::min(rounds_ + nap_rounds, sleeping_from);
  if (rounds_ == sleeping_from) long_wait_.look();
  return true;
}

void complete(MPI_Request& request, std::int64_t ranks, const JointOperation& operation) {
  Backoff backoff(ranks, operation);
  for (int done = 0; !done;) {
    int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS && request != MPI_REQUEST_NULL)  // MPI uses the buffers, and other ranks wait for this one
      code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(code, "MPI_Test");
    if (!done) backoff.wait();
  }
}

void complete(MPI_Request& request, MPI_Comm comm, const char* kind, const char* advice) {
  std::vector<int> ranks;
  const bool known = !caught([&] { ranks = ranks_in(comm, MPI_COMM_WORLD); }) && is_one_node();
  std::uint64_t mixed = 0;
  for (const int rank : ranks) mixed = (mixed ^ static_cast<std::uint32_t>(rank)) * 1099511628211ull;
  const JointOperation operation{kind, "", advice, mixed, comm_rank(MPI_COMM_WORLD), known ? &ranks : nullptr};
  complete(request, comm_size(comm), operation);
}

}  // namespace dace_redist
