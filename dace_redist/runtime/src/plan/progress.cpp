// SPDX-License-Identifier: BSD-3-Clause
#include "plan/progress.hpp"

#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>

#include "core/machine.hpp"
#include "plan/plan.hpp"
#include "trace/trace.hpp"

namespace dace_redist {
namespace {

/// Rounds in which this process sleeps, until it yields again to see whether its core is still shared.
std::atomic<int> shared_core_rounds{0};

std::int64_t nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// Yields the core, and takes note of whether another process used it.
void yield_core() {
  constexpr std::int64_t min_slice = 200'000;  // nanoseconds
  constexpr int rounds = 256;
  const std::int64_t before = nanoseconds();
  sched_yield();
  if (nanoseconds() - before > min_slice) shared_core_rounds.store(rounds, std::memory_order_relaxed);
}

}  // namespace

Backoff::Backoff(std::int64_t ranks) {
  constexpr std::int64_t many_ranks = 8;  // on a core
  crowded_ = ranks > many_ranks * usable_cores();
  busy_rounds_ = ranks > usable_cores() ? 0 : yielding_from;
}

bool Backoff::sleeps() const {
  if (crowded_) return rounds_ > 0;
  if (rounds_ <= busy_rounds_ || shared_core_rounds.load(std::memory_order_relaxed) == 0) return false;
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
  if (rounds_ < sleeping_from)
    yield_core();
  else
    nanosleep(&nap, nullptr);
  return looks;
}

bool Backoff::slept() {
  const MpiPause others;
  rounds_ = std::min(rounds_ + yielding_from, sleeping_from);
  return true;
}

void complete(MPI_Request& request, std::int64_t ranks) {
  Backoff backoff(ranks);
  for (int done = 0; !done;) {
    int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS && request != MPI_REQUEST_NULL)  // MPI uses the buffers, and other ranks wait for this one
      code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(code, "MPI_Test");
    if (!done) backoff.wait();
  }
}

Progress& Progress::instance() {
  alignas(Progress) static char place[sizeof(Progress)];  // a run, which may be the first to look, allocates nothing
  static auto* const progress = new (place) Progress;     // never destroyed: the service thread uses it
  return *progress;
}

void Progress::remove(Plan& plan) {
  const std::lock_guard<std::mutex> locked(guard_);
  started_.erase(std::remove(started_.begin(), started_.end(), &plan), started_.end());
}

Progress::Round Progress::advance(const Plan* awaited) {
  const std::lock_guard<std::mutex> locked(guard_);
  Round round;
  for (Plan* const plan : started_) round.any |= plan->progress();
  round.done = awaited && awaited->done();
  round.posted = awaited && awaited->posted();
  return round;
}

/// Without one, partners may wait until this rank calls test or wait.
void Progress::start_service_thread() {
  if (service_process_ == getpid() || !Arena::made()) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads of the program
  try {
    std::thread([this] { serve(); }).detach();
    service_process_ = getpid();
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Progress::serve() {
  constexpr int max_idle_rounds = 256;  // until it sleeps: the next piece of a partner often follows soon
  Bell& bell = Arena::made()->head().service;
  const auto look = [this] {
    const std::lock_guard<std::mutex> locked(guard_);
    bool any = false;
    for (Plan* const plan : started_) any |= plan->progress(false);
    return any;
  };
  for (int idle = 0;;) {
    const bool any = idle < max_idle_rounds ? look() : look_or_sleep(bell, 0, look);
    idle = any ? 0 : std::min(idle + 1, max_idle_rounds);
    if (idle > 0 && idle < max_idle_rounds) sched_yield();
  }
}

}  // namespace dace_redist
