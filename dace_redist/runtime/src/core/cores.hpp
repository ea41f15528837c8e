// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The cores of this machine.

#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace dace_redist {

/// Number of cores that are online, at least 1. Counted once, since that reads a file.
inline std::int64_t online_cores() {
  static const std::int64_t cores = std::max<std::int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
  return cores;
}

}  // namespace dace_redist
