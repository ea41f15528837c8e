// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Sizes from which copies use non-temporal stores, or several threads.

#include <cstdint>

#include "dace_redist_types.h"

namespace dace_redist {

/// Block size in bytes from which streaming pays, read once: four times the second-level cache of a core (8 MiB if
/// unknown), or the environment variable DACE_REDIST_STREAM_BYTES.
///
/// \throws Error if the variable is set to something else than a number of bytes.
DR_API std::int64_t stream_threshold_bytes();

/// Bytes from which streaming pays if each of `ranks` ranks of a node writes so many into arrays that their owners read
/// next: less stays in the last-level cache, which these ranks share. At least an eighth of stream_threshold_bytes();
/// exactly that if the environment variable is set, or ranks share cores by more than two.
DR_API std::int64_t direct_stream_bytes(std::int64_t ranks);

/// Whether direct_stream_bytes() decides whatever is timed: the environment variable is set, or ranks share cores by
/// more than two, where times are about other ranks' turns.
DR_API bool direct_stream_is_fixed(std::int64_t ranks);

namespace detail {

inline constexpr std::int64_t min_streamed_span = 256;   ///< contiguous target bytes from which streaming pays
inline constexpr std::int64_t direct_stream_run = 1024;  ///< runs from this length on are streamed without a buffer
inline constexpr std::int64_t min_parallel_bytes = 64 << 10;  ///< to start threads for fewer costs more than it saves

}  // namespace detail

}  // namespace dace_redist
