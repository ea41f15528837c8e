// SPDX-License-Identifier: BSD-3-Clause
#include "plan/progress.hpp"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <new>
#include <thread>

#include "plan/plan.hpp"

namespace dace_redist {

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
  const Arena* const arena = Arena::made();  // a forked child, which has no such thread, has another one
  if (!arena || arena == served_) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads of the program
  try {
    std::thread([this] { serve(); }).detach();
    served_ = arena;
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
