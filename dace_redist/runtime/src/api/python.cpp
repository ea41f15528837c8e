// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// What the package's Python calls by ctypes, besides the C interface: communicators come as numbers, and
/// distributions encoded.

#include <cstdint>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "plan/public_options.hpp"

namespace {

MPI_Comm communicator(std::uintptr_t handle) { return (MPI_Comm)(handle); }  // a pointer or an int, sign-extended

}  // namespace

extern "C" {

/// dr_plan_create() for encoded distributions. Each list of numbers comes with its length.
DR_API int dr_python_plan_create(std::uintptr_t comm, const char* strategy, const dr_options* options,
                                 std::int64_t element_bytes, const std::int64_t* source, std::int64_t source_count,
                                 const std::int64_t* target, std::int64_t target_count, const std::int64_t* index_map,
                                 std::int64_t index_map_count, const dr_operation* operation, int source_memory,
                                 int target_memory, dr_plan** plan) {
  using namespace dace_redist;
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    Description description;
    description.label = "redistribution";
    description.strategy = strategy;
    description.element_bytes = element_bytes;
    description.options = internal_options(*options);
    description.source.assign(source, source + source_count);
    description.target.assign(target, target + target_count);
    description.index_map.assign(index_map, index_map + index_map_count);
    description.operation = internal_operation(*operation);
    description.source_memory = internal_memory(source_memory, "source_memory");
    description.target_memory = internal_memory(target_memory, "target_memory");
    *plan = make_handle(std::move(description), communicator(comm));
  });
}

/// What dr_python_joint_create() takes of each tensor: encoded distributions and index map, each with its length.
struct dr_python_problem {
  std::int64_t element_bytes;
  const std::int64_t* source;
  std::int64_t source_count;
  const std::int64_t* target;
  std::int64_t target_count;
  const std::int64_t* index_map;
  std::int64_t index_map_count;
  dr_operation operation;
};

/// dr_plan_create_joint() for encoded distributions.
DR_API int dr_python_joint_create(std::uintptr_t comm, const char* strategy, const dr_options* options,
                                  std::int64_t count, const dr_python_problem* problems, dr_plan** plan) {
  using namespace dace_redist;
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    std::vector<Description> tensors;
    for (std::int64_t i = 0; i < count; ++i) {
      const dr_python_problem& problem = problems[i];
      Description description;
      description.label = text("tensor ", i);
      description.strategy = strategy;
      description.element_bytes = problem.element_bytes;
      description.options = internal_options(*options);
      description.source.assign(problem.source, problem.source + problem.source_count);
      description.target.assign(problem.target, problem.target + problem.target_count);
      description.index_map.assign(problem.index_map, problem.index_map + problem.index_map_count);
      description.operation = internal_operation(problem.operation);
      tensors.push_back(std::move(description));
    }
    *plan = make_joint_handle(std::move(tensors), communicator(comm));
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

/// Whether all ranks hand over the same number, which is not 0. Collective.
DR_API int dr_python_agree(std::uintptr_t comm, std::uint64_t mine) {
  std::uint64_t range[2] = {mine, ~mine}, lowest[2] = {0, 0};
  if (MPI_Allreduce(range, lowest, 2, MPI_UINT64_T, MPI_MIN, communicator(comm)) != MPI_SUCCESS) return 0;
  return lowest[0] == ~lowest[1] && mine != 0;
}

}  // extern "C"
