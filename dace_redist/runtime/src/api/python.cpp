// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Functions that the package's Python calls by ctypes, besides the C interface: communicators are numbers, and
/// distributions are encoded.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "api/handles.hpp"

namespace {

MPI_Comm communicator(std::uintptr_t handle) { return (MPI_Comm)(handle); }  // a pointer or an int, sign-extended

}  // namespace

extern "C" {

/// dr_plan_create_joint() for encoded distributions and arrays in C order.
/// \param elements  types that Python has for the elements, in words; equal on all ranks.
/// \param failure  why this rank has no problem, which is an error on all ranks; null: it has one.
DR_API int dr_python_plan_create(std::uintptr_t comm, const char* strategy, const dr_options* options,
                                 std::int64_t count, const dace_redist::EncodedTensor* tensors, const char* elements,
                                 const char* failure, dr_plan** plan) {
  using namespace dace_redist;
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    check_mpi(communicator(comm));
    *plan = make_plan(communicator(comm), true, [&] {
      if (failure) throw Error(failure);
      Problem problem{"redistribution", strategy, *options, {}, elements};
      std::transform(tensors, tensors + count, std::back_inserter(problem.tensors), decoded);
      return problem;
    });
  });
}

/// dr_plan_set_arrays() for several tensors. \param arrays  extents and strides of each source and target in turn.
DR_API int dr_python_plan_set_arrays(dr_plan* plan, const dace_redist::program::Numbers (*arrays)[4]) {
  using namespace dace_redist;
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    plan->plan->check_idle();
    std::vector<LocalArray> sources, targets;
    const auto listed = [](const program::Numbers& numbers) {
      return std::vector<Index>(numbers.begin, numbers.begin + numbers.count);
    };
    for (std::size_t t = 0; t < plan->plan->problem().tensors.size(); ++t) {
      sources.push_back({listed(arrays[t][0]), listed(arrays[t][1])});
      targets.push_back({listed(arrays[t][2]), listed(arrays[t][3])});
    }
    plan->plan->set_arrays(sources, targets);
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
