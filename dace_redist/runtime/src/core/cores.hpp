// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The cores that ranks may use.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace dace_redist {

/// Number of cores that the ranks of this node may run on, as known from the largest communicator; 0: unknown.
inline std::atomic<std::int64_t> cores_of_ranks{0};

/// Number of cores of this node that the program has, at least 1; those that are online as long as no plan was made.
inline std::int64_t usable_cores() {
  static const std::int64_t online = std::max<std::int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));  // reads a file
  const std::int64_t of_ranks = cores_of_ranks.load(std::memory_order_relaxed);
  return of_ranks > 0 ? of_ranks : online;
}

}  // namespace dace_redist
