// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How much memory may be committed, and committing it step by step.

#include <cstdint>
#include <string>

namespace dace_redist {

/// Smaller allocations do not look at the machine's memory.
inline constexpr std::int64_t checked_bytes = 1 << 20;

/// The largest allocation of node-shared memory: the environment's limit, or no limit.
/// \throws Error if DACE_REDIST_SHARED_BYTES is set to anything else than a number of bytes.
std::int64_t shared_memory_limit();

/// Bytes that the machine and the control groups of this process have left.
std::int64_t available_memory();
/// Bytes that the control groups of this process, of version 1 or 2, and those around them have left.
/// \param root  folder of /proc and /sys, for tests; empty: the root.
std::int64_t left_in_control_groups(const std::string& root);

/// Commits huge pages step by step, as long as memory is left: all ranks of a node may commit at the same time.
/// \return false if memory ran short.
bool commit(char* start, std::int64_t nbytes);

}  // namespace dace_redist
