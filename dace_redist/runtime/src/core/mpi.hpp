// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// MPI calls that throw, and MPI objects that free themselves.

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX  // not Open MPI 4's C++ bindings, which are gone from MPI and warn
#endif
#include <mpi.h>

#include <utility>
#include <vector>

#include "core/error.hpp"
#include "dace_redist_types.h"

namespace dace_redist {

/// \throws Error with the name of the call, this rank (of the world) and MPI's own text.
[[noreturn]] DR_API void throw_error_of(const char* call, int code);

/// \throws Error of the call unless `code` is success.
inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw_error_of(call, code);
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

DR_API int comm_rank(MPI_Comm comm);

DR_API int comm_size(MPI_Comm comm);

/// Of each rank of a communicator, its rank in another one; MPI_UNDEFINED if it is not there.
std::vector<int> ranks_in(MPI_Comm comm, MPI_Comm other);

/// The level of thread support of MPI.
int thread_level();

/// Keeps other threads of the library out of MPI while it lives, under MPI_THREAD_SERIALIZED. Nests.
class DR_API MpiTurn {
 public:
  MpiTurn();
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;
  ~MpiTurn();
};

/// Lets other threads take their turns while it lives and this one waits for other ranks.
class MpiPause {
 public:
  MpiPause();
  MpiPause(const MpiPause&) = delete;
  MpiPause& operator=(const MpiPause&) = delete;
  ~MpiPause();
};

/// Completes the requests that can be completed. \param completed  [requests] set to their numbers. \return how many.
DR_API int test_some(std::vector<MPI_Request>& requests, std::vector<int>& completed);

}  // namespace dace_redist
