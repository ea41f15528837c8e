// SPDX-License-Identifier: BSD-3-Clause
#include "core/mpi.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

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

int most_node_ranks() {
  const char* const value = std::getenv(node_ranks_variable);
  if (!value) return 0;
  char* end = nullptr;
  const long most = std::strtol(value, &end, 10);
  return end == value || *end != '\0' || most < 0 || most > std::numeric_limits<int>::max() ? -1
                                                                                            : static_cast<int>(most);
}

void check_node_ranks() {
  if (most_node_ranks() < 0)
    throw Error(text(node_ranks_variable, ": expected a number of ranks >= 0 (0: all ranks of a node), got \"",
                     std::getenv(node_ranks_variable), "\""));
}

Communicator node_communicator(MPI_Comm comm) {
  Communicator node;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, comm_rank(comm), MPI_INFO_NULL, node.put()),
        "MPI_Comm_split_type");
  const int most = most_node_ranks();
  if (most <= 0) return node;
  Communicator part;
  check(MPI_Comm_split(node.get(), comm_rank(MPI_COMM_WORLD) / most, comm_rank(comm), part.put()), "MPI_Comm_split");
  return part;
}

std::vector<int> ranks_of_node(MPI_Comm comm) {
  const Communicator node = node_communicator(comm);
  Group everyone, here;
  check(MPI_Comm_group(comm, everyone.put()), "MPI_Comm_group");
  check(MPI_Comm_group(node.get(), here.put()), "MPI_Comm_group");
  std::vector<int> numbers(static_cast<std::size_t>(comm_size(node.get())));
  std::vector<int> ranks(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
  check(MPI_Group_translate_ranks(here.get(), static_cast<int>(numbers.size()), numbers.data(), everyone.get(),
                                  ranks.data()),
        "MPI_Group_translate_ranks");
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> lowest_ranks_of_nodes(MPI_Comm comm, const std::vector<int>& partners) {
  std::vector<int> lowest(static_cast<std::size_t>(comm_size(comm)));
  check(MPI_Allgather(&partners.front(), 1, MPI_INT, lowest.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return lowest;
}

void wait_all(std::vector<MPI_Request>& requests) {
  const trace::Span span("wait");
  check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  requests.clear();
}

}  // namespace dace_redist
