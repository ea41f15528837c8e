// SPDX-License-Identifier: BSD-3-Clause
#include "copy/stream_threshold.hpp"

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace dace_redist {
namespace {

std::int64_t determine_threshold() {
  if (const char* const text = std::getenv("DACE_REDIST_STREAM_BYTES")) {
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
}

}  // namespace

std::int64_t stream_threshold_bytes() {
  static const std::int64_t threshold = determine_threshold();
  return threshold;
}

}  // namespace dace_redist
