// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// MPI calls that throw, and MPI objects that free themselves.

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX  // not Open MPI 4's C++ bindings, which are gone from MPI and warn
#endif
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "error.hpp"
#include "trace/trace.hpp"

namespace dace_redist {

/// \throws Error with the name of the call, this rank (of the world) and MPI's own text, unless `code` is success.
inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  int rank = -1, length = 0;
  char message[MPI_MAX_ERROR_STRING + 1] = "unknown error";
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Error_string(code, message, &length);
  throw Error(text(call, " failed on rank ", rank, ": ", message));
}

/// Owns an MPI handle; `Free` frees it. Movable, not copyable.
template <class Handle, class Free>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Free::null())) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    int finalized = 0;
    MPI_Finalized(&finalized);  // a program may outlive MPI, whose objects are gone then
    if (handle_ != Free::null() && !finalized) Free::free(&handle_);
  }
  Handle get() const { return handle_; }
  Handle* put() { return &handle_; }

 private:
  Handle handle_ = Free::null();
};

struct FreeCommunicator {
  static MPI_Comm null() { return MPI_COMM_NULL; }
  static void free(MPI_Comm* handle) { MPI_Comm_free(handle); }
};
struct FreeDatatype {
  static MPI_Datatype null() { return MPI_DATATYPE_NULL; }
  static void free(MPI_Datatype* handle) { MPI_Type_free(handle); }
};
struct FreeGroup {
  static MPI_Group null() { return MPI_GROUP_NULL; }
  static void free(MPI_Group* handle) { MPI_Group_free(handle); }
};
struct FreeWindow {
  static MPI_Win null() { return MPI_WIN_NULL; }
  static void free(MPI_Win* handle) { MPI_Win_free(handle); }
};

using Communicator = Owned<MPI_Comm, FreeCommunicator>;
using Datatype = Owned<MPI_Datatype, FreeDatatype>;
using Group = Owned<MPI_Group, FreeGroup>;
using Window = Owned<MPI_Win, FreeWindow>;

/// A private copy of a communicator, whose errors come back as codes; the null communicator stays null.
inline Communicator duplicate(MPI_Comm comm) {
  Communicator copy;
  if (comm == MPI_COMM_NULL) return copy;
  check(MPI_Comm_dup(comm, copy.put()), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(copy.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

inline int comm_rank(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

inline int comm_size(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Environment variable: so many consecutive ranks of MPI_COMM_WORLD count as a node, where they share one. Tries on
/// one machine what happens between nodes.
inline constexpr const char* node_ranks_variable = "DACE_REDIST_NODE_RANKS";

/// Most ranks that count as a node; 0: all that share it; -1: the variable is set to something else than that.
inline int most_node_ranks() {
  const char* const value = std::getenv(node_ranks_variable);
  if (!value) return 0;
  char* end = nullptr;
  const long most = std::strtol(value, &end, 10);
  return end == value || *end != '\0' || most < 0 || most > std::numeric_limits<int>::max() ? -1
                                                                                            : static_cast<int>(most);
}

/// \throws Error if the environment variable is none of the numbers allowed.
inline void check_node_ranks() {
  if (most_node_ranks() < 0)
    throw Error(text(node_ranks_variable, ": expected a number of ranks >= 0 (0: all ranks of a node), got \"",
                     std::getenv(node_ranks_variable), "\""));
}

/// The ranks of a communicator that share this node's memory, in their order. Collective.
inline Communicator node_communicator(MPI_Comm comm) {
  Communicator node;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, comm_rank(comm), MPI_INFO_NULL, node.put()),
        "MPI_Comm_split_type");
  const int most = most_node_ranks();
  if (most <= 0) return node;
  Communicator part;
  check(MPI_Comm_split(node.get(), comm_rank(MPI_COMM_WORLD) / most, comm_rank(comm), part.put()), "MPI_Comm_split");
  return part;
}

/// The numbers in `comm` of the ranks that share this node's memory, ascending, this one among them. Collective.
inline std::vector<int> ranks_of_node(MPI_Comm comm) {
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

/// The lowest rank of the node of each rank. Collective.
/// \param partners  the ranks of this node, ascending.
inline std::vector<int> lowest_ranks_of_nodes(MPI_Comm comm, const std::vector<int>& partners) {
  std::vector<int> lowest(static_cast<std::size_t>(comm_size(comm)));
  check(MPI_Allgather(&partners.front(), 1, MPI_INT, lowest.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return lowest;
}

/// Waits for all, and forgets them.
inline void wait_all(std::vector<MPI_Request>& requests) {
  const trace::Span span("wait");
  check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  requests.clear();
}

}  // namespace dace_redist
