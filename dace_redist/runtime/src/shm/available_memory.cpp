// SPDX-License-Identifier: BSD-3-Clause
#include "shm/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

#include "copy/huge_pages.hpp"
#include "core/options.hpp"
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

/// Bytes of a control group's files in memory, which the system gives up for allocations.
std::int64_t cached_files(const std::string& path, const std::string& prefix) {
  std::ifstream lines(path);
  std::string name;
  std::int64_t sum = 0;
  for (std::int64_t nbytes = 0; lines >> name >> nbytes;)
    if (name == prefix + "active_file" || name == prefix + "inactive_file") sum += nbytes;
  return sum;
}

}  // namespace

/// Limits hold for all groups below: of a job, its steps and tasks. In a container the path may be that of outside, and
/// the root is the container's.
std::int64_t left_in_control_groups(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::int64_t left = no_limit;
  for (std::string line; std::getline(groups, line);) {
    const std::size_t names = line.find(':') + 1, path = line.find(':', names) + 1;
    const bool unified = line.rfind("0::", 0) == 0;
    if (!unified && ("," + line.substr(names, path - 1 - names) + ",").find(",memory,") == std::string::npos) continue;
    const std::string top = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (std::string group = line.substr(path);; group.resize(group.rfind('/'))) {
      if (group == "/") group.clear();
      const std::string file = top + group + "/memory.";
      const std::int64_t limit = number_in(file + (unified ? "max" : "limit_in_bytes")),
                         used = number_in(file + (unified ? "current" : "usage_in_bytes"));
      if (limit != no_limit && used != no_limit)
        left = std::min(left,
                        std::max<std::int64_t>(0, limit - used + cached_files(file + "stat", unified ? "" : "total_")));
      if (group.empty()) break;
    }
  }
  return left;
}

std::int64_t shared_memory_limit() {
  return environment_number(shared_memory_variable, "bytes >= 0").value_or(no_limit);
}

std::int64_t available_memory() { return std::min(left_on_machine(), left_in_control_groups("")); }

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
