// SPDX-License-Identifier: BSD-3-Clause
#include "copy/stream_threshold.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/machine.hpp"
#include "core/options.hpp"

namespace dace_redist {
namespace {

std::optional<std::int64_t> given_threshold() { return environment_number("DACE_REDIST_STREAM_BYTES", "bytes >= 0"); }

std::int64_t determine_threshold() {
  if (const std::optional<std::int64_t> given = given_threshold()) return *given;
  long cache_bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  cache_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  return cache_bytes > 0 ? 4 * std::int64_t{cache_bytes} : std::int64_t{8} << 20;
}

/// Bytes of last-level cache for each core that uses it; 0 if unknown. No core has more than the limit: a virtual
/// machine shows the cache of all cores of its host.
std::int64_t determine_cache_share() {
  constexpr std::int64_t limit = std::int64_t{16} << 20;
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
  const std::int64_t share = cores > 0 ? kibibytes * 1024 / cores : 0;
  return share <= limit ? share : 0;
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
  static const bool given = given_threshold().has_value();
  return given || crowd_cores(ranks);
}

}  // namespace dace_redist
