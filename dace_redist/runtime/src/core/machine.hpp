// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The machine: its cache lines, the cores that ranks may use, and the memories that arrays lie in.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace dace_redist {

/// Bytes of a cache line. Data of different writers lie in different lines.
inline constexpr std::int64_t cache_line_bytes = 64;

/// The next multiple of `unit` from `number` on, both at least 0.
constexpr std::int64_t round_up(std::int64_t number, std::int64_t unit) { return (number + unit - 1) / unit * unit; }

/// `nbytes` rounded up to whole cache lines.
constexpr std::int64_t whole_lines(std::int64_t nbytes) { return round_up(nbytes, cache_line_bytes); }

/// Number of cores that the ranks of this node may run on, as known from the largest communicator; 0: unknown.
inline std::atomic<std::int64_t> cores_of_ranks{0};

/// Number of cores of this node that the program has, at least 1; those that are online as long as no plan was made.
inline std::int64_t usable_cores() {
  static const std::int64_t online = std::max<std::int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));  // reads a file
  const std::int64_t of_ranks = cores_of_ranks.load(std::memory_order_relaxed);
  return of_ranks > 0 ? of_ranks : online;
}

/// As dr_memory of the C interface.
enum class Memory : std::int64_t { host, device };

/// A queue of a device's work; null: the default stream.
using Stream = void*;

}  // namespace dace_redist
