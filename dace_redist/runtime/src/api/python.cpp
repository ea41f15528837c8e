// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Functions that the package's Python calls by ctypes, besides the C interface: communicators are numbers, and
/// distributions are encoded.

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "api/handles.hpp"

namespace {

MPI_Comm communicator(std::uintptr_t handle) { return (MPI_Comm)(handle); }  // a pointer or an int, sign-extended

}  // namespace

extern "C" {

/// dr_plan_create() and, if `joint`, dr_plan_create_joint() for encoded distributions and arrays in C order.
DR_API int dr_python_plan_create(std::uintptr_t comm, const char* strategy, const dr_options* options, int joint,
                                 std::int64_t count, const dace_redist::EncodedTensor* tensors, dr_plan** plan) {
  using namespace dace_redist;
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    check_mpi(communicator(comm));
    *plan = make_plan(communicator(comm), joint != 0, [&] {
      Problem problem{"redistribution", strategy, *options, {}};
      std::transform(tensors, tensors + count, std::back_inserter(problem.tensors), decoded);
      return problem;
    });
  });
}

/// Which MPI the library was compiled with, by its name in MPI_Get_library_version(); empty if it is another one.
DR_API const char* dr_python_mpi() {
#if defined(OPEN_MPI)
  return "Open MPI";
#elif defined(MPICH_VERSION)
  return "MPICH";
#else
  return "";
#endif
}

/// Whether all ranks pass one number, which is not 0. Collective.
DR_API int dr_python_agree(std::uintptr_t comm, std::uint64_t mine) {
  std::uint64_t range[2] = {mine, ~mine}, lowest[2] = {0, 0};
  if (MPI_Allreduce(range, lowest, 2, MPI_UINT64_T, MPI_MIN, communicator(comm)) != MPI_SUCCESS) return 0;
  return lowest[0] == ~lowest[1] && mine != 0;
}

}  // extern "C"
