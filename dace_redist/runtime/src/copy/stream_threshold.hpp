// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// From which sizes on blocks are copied with non-temporal stores.

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include "copy/copy_block.hpp"

namespace dace_redist {

/// Block size in bytes from which streaming pays, read once.
///
/// Four times the second-level cache of a core (8 MiB if unknown), or the environment variable
/// DACE_REDIST_STREAM_BYTES.
///
/// \throws std::invalid_argument if the variable is set to something else than a number of bytes.
inline std::int64_t stream_threshold_bytes() {
  const auto determine = []() -> std::int64_t {
    if (const char* text = std::getenv("DACE_REDIST_STREAM_BYTES")) {
      char* end = nullptr;
      const long long value = std::strtoll(text, &end, 10);
      if (end == text || *end != '\0' || value < 0)
        throw std::invalid_argument("DACE_REDIST_STREAM_BYTES: expected a number of bytes >= 0, got \"" +
                                    std::string(text) + "\"");
      return value;
    }
    long cache_bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    cache_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return cache_bytes > 0 ? 4 * std::int64_t{cache_bytes} : std::int64_t{8} << 20;
  };
  static const std::int64_t threshold = determine();
  return threshold;
}

namespace detail {

inline constexpr std::int64_t min_streamed_span = 256;  ///< contiguous target bytes from which streaming pays
inline constexpr std::int64_t direct_stream_run = 1024;      ///< runs from this length on are streamed without a buffer

/// Contiguous target bytes: one run, or the columns if they follow each other.
inline std::int64_t target_span(const CopyBlock& block) {
  std::int64_t span = block.run_bytes;
  for (auto d = static_cast<std::size_t>(block.ndim); d-- > 0 && block.target_strides[d] == span;)
    span *= block.counts[d];
  return span;
}

}  // namespace detail

}  // namespace dace_redist
