// SPDX-License-Identifier: BSD-3-Clause
#include "core/long_wait.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "core/error.hpp"

namespace dace_redist {
namespace {

/// The nearest ancestor in another session: MPICH gives each rank, and its wrapper, a session of its own.
pid_t launching_process() {
  pid_t process = getpid();
  while (process > 1 && getsid(process) == getsid(0)) {
    std::FILE* const file = std::fopen(text("/proc/", process, "/stat").c_str(), "r");
    if (!file || std::fscanf(file, "%*d (%*[^)]) %*c %d", &process) != 1) process = 0;
    if (file) std::fclose(file);
  }
  return process;
}

/// What the processes of one launch on a node, and no others, have in common.
const std::string& job() {
  static const std::string name = [] {
    const auto variable = [](const char* one) {
      const char* const value = std::getenv(one);
      return std::string(value ? value : "");
    };
    std::string found = variable("PMIX_NAMESPACE");
    if (found.empty()) found = variable("SLURM_JOB_ID") + variable("SLURM_STEP_ID");
    return found.empty() ? text("process ", launching_process()) : found;
  }();
  return name;
}

struct Address {
  explicit Address(const std::string& name) : length(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1)) {
    value.sun_family = AF_UNIX;
    length += static_cast<socklen_t>(name.copy(value.sun_path + 1, sizeof value.sun_path - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }

  sockaddr_un value{};
  socklen_t length;
};

int new_socket() { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

bool is_present(int rank, std::string_view operation) {
  const Address address(presence_name(rank, operation));
  const int asking = new_socket();
  const bool found = asking >= 0 && connect(asking, address.get(), address.length) == 0;
  if (asking >= 0) close(asking);
  return found;
}

std::string name_of(const JointOperation& operation) { return text(operation.kind, " ", operation.number); }

}  // namespace

double environment_seconds(const char* name, double initial) {
  const char* const given = std::getenv(name);
  if (!given || !*given) return initial;
  char* end = nullptr;
  const double seconds = std::strtod(given, &end);
  if (!*end) return seconds;
  static std::atomic<bool> warned{false};
  warn_once(warned, "dace-redist: %s must be a number of seconds, got '%s'\n", name, given);
  return initial;
}

double wait_message_seconds() {
  constexpr double initial = 10;
  return environment_seconds(wait_message_variable, initial);
}

std::string presence_name(int rank, std::string_view operation) {
  const std::size_t unique = std::hash<std::string>()(text(getuid(), " ", job(), " ", operation));
  return text("dace-redist-", unique, "-", rank);  // of a length that fits
}

std::string wait_message(int rank, double seconds, const std::string& operation, const std::vector<int>& missing,
                         bool elsewhere) {
  constexpr std::size_t max_listed = 16;
  std::string listed = missing.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(max_listed, missing.size()); ++i) listed += text(i ? ", " : " ", missing[i]);
  if (missing.size() > max_listed) listed += ", ...";
  if (missing.empty()) listed = "other ranks";
  return text("dace-redist: rank ", rank, " has waited ", seconds, " s in ", operation, ": ", listed,
              missing.size() == 1 ? " is" : " are", " not in it",
              missing.empty() || !elsewhere ? "" : " (of this node)", "; ", wait_message_variable,
              "=0 silences this\n");
}

void LongWait::look() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (since_ == decltype(since_)()) since_ = now;
  static const double limit = wait_message_seconds();
  if (limit <= 0 || told_) return;
  const std::chrono::duration<double> waited = now - since_;
  told_ = waited.count() >= limit;
  caught([&] {
    if (socket_ < 0) enter();
    if (told_) tell(limit);
  });
}

void LongWait::enter() {
  socket_ = new_socket();
  const Address address(presence_name(operation_.rank, name_of(operation_)));
  bind(socket_, address.get(), address.length);  // fails if another thread of this process is in it
}

void LongWait::leave() { close(socket_); }

void LongWait::tell(double seconds) const {
  if (is_present(operation_.rank, "python")) return;  // which says it itself
  std::vector<int> missing;
  if (operation_.ranks) {
    for (const int rank : *operation_.ranks)
      if (rank >= 0 && !is_present(rank, name_of(operation_))) missing.push_back(rank);
    if (missing.empty()) return;  // a rank of another node is missing, or came late
  }
  const std::string label = *operation_.label ? text(" of \"", operation_.label, "\"") : "";
  const std::string what = operation_.kind + label;
  const std::string line = wait_message(operation_.rank, seconds, what, missing, operation_.elsewhere);
  std::fputs((line + operation_.advice).c_str(), stderr);
}

}  // namespace dace_redist
