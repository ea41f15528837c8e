// SPDX-License-Identifier: BSD-3-Clause
#include "plan/progress.hpp"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "plan/plan.hpp"

namespace dace_redist {

Progress& Progress::instance() {
  static auto* const progress = new Progress;  // never freed: the service thread uses it
  return *progress;
}

void Progress::remove(Plan& plan) {
  const std::lock_guard<std::mutex> locked(guard_);
  started_.erase(std::remove(started_.begin(), started_.end(), &plan), started_.end());
}

bool Progress::advance() {
  const std::lock_guard<std::mutex> locked(guard_);
  bool any = false;
  for (Plan* const plan : started_) any |= plan->progress();
  return any;
}

bool Progress::advance_until_done(Plan& plan, bool& any) {
  const std::lock_guard<std::mutex> locked(guard_);
  any = false;
  for (Plan* const started : started_) any |= started->progress();
  return plan.done();
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
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Progress::serve() {
  constexpr int max_idle_rounds = 256;  // until it sleeps: the next piece of a partner often follows soon
  Bell& bell = Arena::made()->head().service;
  const auto look = [this] {
    const std::lock_guard<std::mutex> locked(guard_);
    bool any = false;
    for (Plan* const plan : started_) any |= plan->progress_without_mpi();
    return any;
  };
  for (int idle = 0;;) {
    const bool any = idle < max_idle_rounds ? look() : look_or_sleep(bell, 0, look);
    idle = any ? 0 : std::min(idle + 1, max_idle_rounds);
    if (idle > 0 && idle < max_idle_rounds) sched_yield();
  }
}

}  // namespace dace_redist
