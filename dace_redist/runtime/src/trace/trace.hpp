// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Records what a rank does when, in a file of its own, if the environment asks for it. `dace-redist trace` merges the
/// files of all ranks.

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "dace_redist_types.h"

namespace dace_redist::trace {

using Clock = std::chrono::steady_clock;

/// The folder of the files; null: nothing is recorded.
inline const char* const folder = [] {
  const char* const name = std::getenv("DACE_REDIST_TRACE");
  return name && *name ? name : nullptr;
}();

inline constexpr int no_peer = -1;

/// A period that a thread spent on one activity.
struct Event {
  const char* kind = nullptr;      ///< the activity, such as "pack"; a literal
  const char* label = nullptr;     ///< name of the plan or the library node
  const char* strategy = nullptr;  ///< of the plan
  int peer = no_peer;              ///< rank of the plan's communicator
  std::int64_t nbytes = 0;         ///< copied or sent
  Clock::time_point start, end;
};

/// Stores an event, until the process ends or many are stored. Thread-safe.
DR_API void record(const Event& event);

/// Records the period from its construction to its destruction.
class Span {
 public:
  explicit Span(const char* kind, int peer = no_peer, std::int64_t nbytes = 0) : Span(kind, {}, {}, peer, nbytes) {}

  /// \param label, strategy  must outlive the span.
  Span(const char* kind, const char* label, const char* strategy, int peer = no_peer, std::int64_t nbytes = 0) {
    if (folder) event_ = {kind, label, strategy, peer, nbytes, Clock::now(), {}};
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (!event_.kind) return;
    event_.end = Clock::now();
    record(event_);
  }

 private:
  Event event_;
};

}  // namespace dace_redist::trace
