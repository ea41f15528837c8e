// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// malloc and free for arrays: from a minimum size on in node-shared memory.

#include <cstddef>

#include "core/error.hpp"

namespace dace_redist {

/// Smaller arrays lie in ordinary memory.
inline constexpr std::size_t min_shared_bytes = std::size_t{64} << 10;

/// Memory for an array; ordinary memory where node-shared memory is short. Null if there is none.
/// \param zero        whether it must be zeros.
/// \param min_shared  bytes from which on it is node-shared.
void* allocate_array(std::size_t nbytes, bool zero, std::size_t min_shared = min_shared_bytes) noexcept;

/// Memory of another size with the contents that fit. Null if there is none; the old memory stays then.
void* resize_array(void* array, std::size_t nbytes) noexcept;

/// Frees memory of allocate_array() or of malloc(). Memory of a parent process is left alone.
void free_array(void* array) noexcept;

/// Prints one line on standard error, the first time in a process: ordinary memory replaces node-shared memory.
void warn_fallback_once(const Error& error);

}  // namespace dace_redist
