// SPDX-License-Identifier: BSD-3-Clause
#include "core/mpi.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <numeric>

namespace dace_redist {
namespace {

/// Threads take turns in the order in which they ask, as one that waits for other ranks asks again and again.
struct Turns {
  void take() {
    std::unique_lock<std::mutex> locked(guard);
    next.wait(locked, [this, mine = asked++] { return served == mine; });
  }
  void end() {
    const std::lock_guard<std::mutex> locked(guard);
    ++served;
    next.notify_all();
  }
  std::mutex guard;
  std::condition_variable next;
  std::uint64_t asked = 0, served = 0;
};

Turns& turns() {
  static auto* const all = new Turns;
  return *all;
}

thread_local int nested_turns = 0;  // of this thread, under MPI_THREAD_SERIALIZED

}  // namespace

MpiTurn::MpiTurn() {
  if (thread_level() == MPI_THREAD_SERIALIZED && nested_turns++ == 0) turns().take();
}
MpiTurn::~MpiTurn() {
  if (nested_turns > 0 && --nested_turns == 0) turns().end();
}
MpiPause::MpiPause() {
  if (nested_turns > 0) turns().end();
}
MpiPause::~MpiPause() {
  if (nested_turns > 0) turns().take();
}

void throw_error_of(const char* call, int code) {
  int rank = -1, length = 0;
  char message[MPI_MAX_ERROR_STRING + 1] = "unknown error";
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Error_string(code, message, &length);
  throw Error(text(call, " failed on rank ", rank, ": ", message));
}

int comm_rank(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int comm_size(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

std::vector<int> ranks_in(MPI_Comm comm, MPI_Comm other) {
  const int size = comm_size(comm);
  std::vector<int> ranks(static_cast<std::size_t>(size)), there(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  Group group, others;
  check(MPI_Comm_group(comm, group.put()), "MPI_Comm_group");
  check(MPI_Comm_group(other, others.put()), "MPI_Comm_group");
  check(MPI_Group_translate_ranks(group.get(), size, ranks.data(), others.get(), there.data()),
        "MPI_Group_translate_ranks");
  return there;
}

int thread_level() {
  static const int level = [] {
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
    return provided;
  }();
  return level;
}

int test_some(std::vector<MPI_Request>& requests, std::vector<int>& completed) {
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, completed.data(), MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  return count == MPI_UNDEFINED ? 0 : count;
}

}  // namespace dace_redist
