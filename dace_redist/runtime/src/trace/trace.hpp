// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What a rank did when, written in Chrome's trace event format if the environment asks for it.
/// Format: "Trace Event Format", Google, 2016: complete events ("ph": "X") in a JSON array.

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "core/export.hpp"

namespace dace_redist::trace {

using Clock = std::chrono::steady_clock;

/// The file to write; null: nothing is recorded.
inline const char* const file_name = [] {
  const char* const name = std::getenv("DACE_REDIST_TRACE");
  return name && *name ? name : nullptr;
}();

inline constexpr int nobody = -1;

/// A stretch of time that a thread spent on one thing.
struct Event {
  const char* kind = nullptr;      ///< what it did, such as "pack"; a literal
  const char* label = nullptr;     ///< for what, such as the name of a node
  const char* strategy = nullptr;  ///< by which strategy
  int partner = nobody;            ///< with which rank of the plan's communicator
  std::int64_t nbytes = 0;         ///< how much was copied or sent
  Clock::time_point start, end;
};

/// Keeps an event. Thread-safe.
DR_API void record(const Event& event);

/// Records the time from its making to its end.
class Span {
 public:
  explicit Span(const char* kind, int partner = nobody, std::int64_t nbytes = 0)
      : Span(kind, {}, {}, partner, nbytes) {}

  /// \param label, strategy  must outlive the span.
  Span(const char* kind, const char* label, const char* strategy, int partner = nobody, std::int64_t nbytes = 0) {
    if (!file_name) return;
    event_ = {kind, label, strategy, partner, nbytes, Clock::now(), {}};
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
