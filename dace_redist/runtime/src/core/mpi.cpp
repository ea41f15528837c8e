// SPDX-License-Identifier: BSD-3-Clause
#include "core/mpi.hpp"

#include "trace/trace.hpp"

namespace dace_redist {

void throw_error_of(const char* call, int code) {
  int rank = -1, length = 0;
  char message[MPI_MAX_ERROR_STRING + 1] = "unknown error";
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Error_string(code, message, &length);
  throw Error(text(call, " failed on rank ", rank, ": ", message));
}

Communicator duplicate(MPI_Comm comm) {
  Communicator copy;
  if (comm == MPI_COMM_NULL) return copy;
  check(MPI_Comm_dup(comm, copy.put()), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(copy.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
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

void wait_all(std::vector<MPI_Request>& requests) {
  const trace::Span span("wait");
  check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  requests.clear();
}

}  // namespace dace_redist
