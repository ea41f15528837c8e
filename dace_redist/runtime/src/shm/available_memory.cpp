// SPDX-License-Identifier: BSD-3-Clause
#include "shm/available_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "copy/huge_pages.hpp"
#include "shm/arena.hpp"

namespace dace_redist {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// The number in a file; `no_limit` if there is no such file or no number in it.
std::int64_t number_in(const std::string& path) {
  std::int64_t number = 0;
  return std::ifstream(path) >> number ? number : no_limit;
}

/// Bytes that the machine has left.
std::int64_t left_on_machine() {
  std::ifstream lines("/proc/meminfo");
  std::string name, unit;
  for (std::int64_t kilobytes = 0; lines >> name >> kilobytes; std::getline(lines, unit))
    if (name == "MemAvailable:") return kilobytes * 1024;
  return no_limit;
}

/// Bytes that this process's control group (version 2) has left.
std::int64_t left_in_control_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line) && line.rfind("0::", 0) != 0) {
  }
  if (line.rfind("0::", 0) != 0) return no_limit;
  const std::string folder = "/sys/fs/cgroup" + line.substr(3);
  const std::int64_t limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
  return limit == no_limit || used == no_limit ? no_limit : std::max<std::int64_t>(0, limit - used);
}

}  // namespace

std::int64_t shared_memory_limit() {
  const char* const value = std::getenv(shared_memory_variable);
  if (!value) return no_limit;
  char* end = nullptr;
  const long long limit = std::strtoll(value, &end, 10);
  if (end == value || *end != '\0' || limit < 0)
    throw Error(text(shared_memory_variable, ": expected a number of bytes >= 0, got \"", value, "\""));
  return limit;
}

std::int64_t available_memory() { return std::min(left_on_machine(), left_in_control_group()); }

bool commit(char* start, std::int64_t nbytes) {
  constexpr std::int64_t step_bytes = std::int64_t{256} << 20;
  for (std::int64_t at = 0; at < nbytes; at += step_bytes) {
    const std::int64_t step = std::min(step_bytes, nbytes - at);
    if (nbytes > step_bytes && available_memory() < step) return false;
    take_huge_pages(start + at, step);
  }
  return true;
}

}  // namespace dace_redist
