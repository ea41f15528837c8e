// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// malloc and free for arrays: from a minimum size on in node-shared memory.

#include <cstddef>

namespace dace_redist {

/// Smaller arrays lie in ordinary memory.
inline constexpr std::size_t min_shared_bytes = std::size_t{64} << 10;

/// Memory for an array; ordinary memory where node-shared memory is short. Null if there is none.
/// \param zero  whether it must be zeros.
void* allocate_array(std::size_t nbytes, bool zero) noexcept;

/// Memory of another size with the contents that fit. Null if there is none; the old memory stays then.
void* resize_array(void* array, std::size_t nbytes) noexcept;

}  // namespace dace_redist
