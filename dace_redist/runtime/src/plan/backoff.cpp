// SPDX-License-Identifier: BSD-3-Clause
#include "plan/backoff.hpp"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "trace/trace.hpp"

namespace dace_redist {

namespace {

std::int64_t cores() {
  static const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return std::max(online, 1L);
}

}  // namespace

Backoff::Backoff(std::int64_t ranks) {
  constexpr std::int64_t many_ranks = 8;  // on a core
  crowded_ = ranks > many_ranks * cores();
  busy_rounds_ = ranks > cores() ? 0 : yielding_from;
}

bool Backoff::wait() {
  constexpr int look_interval = 64;
  constexpr long short_nap_nanoseconds = 50000;
  const bool looks = rounds_ % look_interval == look_interval - 1 || rounds_ >= sleeping_from;
  if (rounds_ < sleeping_from) ++rounds_;
  if (rounds_ <= busy_rounds_) return looks;
  const trace::Span span("wait");
  if (rounds_ < sleeping_from) {
    sched_yield();
    return looks;
  }
  const timespec nap{0, short_nap_nanoseconds};
  nanosleep(&nap, nullptr);
  return looks;
}

bool Backoff::slept() {
  rounds_ = std::min(rounds_ + yielding_from, sleeping_from);
  return true;
}

}  // namespace dace_redist
