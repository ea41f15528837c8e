// SPDX-License-Identifier: BSD-3-Clause
#include "copy/stream_threshold.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "core/cores.hpp"

namespace dace_redist {
namespace {

const char* given_threshold() { return std::getenv("DACE_REDIST_STREAM_BYTES"); }

std::int64_t determine_threshold() {
  if (const char* const text = given_threshold()) {
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

/// Bytes of last-level cache for each core that uses it; 0 if unknown.
std::int64_t determine_cache_share() {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index3/";  // sysconf() may name that of all sockets
  std::int64_t kibibytes = 0;
  std::ifstream(folder + "size") >> kibibytes;     // as "32768K"
  std::ifstream list(folder + "shared_cpu_list");  // as "0-3,8-11"
  std::int64_t cores = 0;
  for (std::string range; std::getline(list, range, ',');) {
    char* rest = nullptr;
    const long first = std::strtol(range.c_str(), &rest, 10);
    cores += *rest == '-' ? std::strtol(rest + 1, nullptr, 10) - first + 1 : 1;
  }
  return cores > 0 ? kibibytes * 1024 / cores : 0;
}

/// Whether so many ranks share cores that short runs take longer without streaming.
bool crowd_cores(std::int64_t ranks) { return ranks > 2 * std::int64_t{usable_cores()}; }

}  // namespace

std::int64_t stream_threshold_bytes() {
  static const std::int64_t threshold = determine_threshold();
  return threshold;
}

std::int64_t direct_stream_bytes(std::int64_t ranks) {
  static const std::int64_t share = given_threshold() ? 0 : determine_cache_share();
  const std::int64_t cores = usable_cores();
  const std::int64_t of_rank = crowd_cores(ranks) ? 0 : share * cores / std::max(cores, ranks) * 3 / 8;
  return std::max(stream_threshold_bytes() / 8, of_rank);
}

bool direct_stream_is_fixed(std::int64_t ranks) {
  static const bool given = given_threshold() != nullptr;
  return given || crowd_cores(ranks);
}

}  // namespace dace_redist
