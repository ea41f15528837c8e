// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Functions that the package's Python calls by ctypes, besides the C interface: communicators are numbers, and
/// distributions are encoded. Arrays in a device's memory are Python's own.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api/handles.hpp"
#include "dace_redist_library.hpp"
#include "device/device_objects.hpp"

using namespace dace_redist;

namespace {

MPI_Comm communicator(std::uintptr_t handle) { return (MPI_Comm)(handle); }  // a pointer or an int, sign-extended

/// Settings of a plan of messages; throws `failure` if it is not null.
dr_problem given_problem(const char* strategy, const dr_options& options, std::int64_t element_bytes,
                         const dr_operation* operation, const char* failure) {
  if (failure) throw Error(failure);
  dr_problem problem;
  dr_problem_init(&problem);
  problem.strategy = strategy;
  problem.options = options;
  problem.element_bytes = element_bytes;
  if (operation) problem.operation = *operation;
  return problem;
}

/// Allocations of Python's arrays, by address.
std::map<void*, DeviceHandle> device_arrays;
std::mutex device_arrays_guard;

}  // namespace

extern "C" {

/// dr_plan_create_joint() for encoded distributions and arrays in C order.
/// \param elements  types that Python has for the elements, in words; equal on all ranks.
/// \param failure  why this rank has no problem, which is an error on all ranks; null: it has one.
DR_API int dr_python_plan_create(std::uintptr_t comm, const char* strategy, const dr_options* options,
                                 std::int64_t count, const EncodedTensor* tensors, const char* elements,
                                 const char* failure, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    check_mpi(communicator(comm));
    *plan = make_plan(communicator(comm), true, [&] {
      if (failure) throw Error(failure);
      Problem problem{"redistribution", strategy, *options, {}, elements};
      std::transform(tensors, tensors + count, std::back_inserter(problem.tensors),
                     [](const EncodedTensor& tensor) { return decoded(tensor); });
      return problem;
    });
  });
}

/// dr_plan_create_messages() for blocks of this rank. \param failure  as above.
DR_API int dr_python_plan_create_messages(std::uintptr_t comm, const char* strategy, const dr_options* options,
                                          std::int64_t element_bytes, const dr_operation* operation,
                                          const BlockLists* lists, const char* failure, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    check_mpi(communicator(comm));
    *plan = make_given(
        communicator(comm), true, [&] { return given_problem(strategy, *options, element_bytes, operation, failure); },
        [&](const dr_problem& problem, Context& context) { return block_sides(*lists, problem, context); });
  });
}

/// dr_plan_create_alltoallw() for datatypes that are numbers.
/// \param lists  counts and displacements of what is sent, and of what is received; then the types of both.
DR_API int dr_python_plan_create_alltoallw(std::uintptr_t comm, const char* strategy, const dr_options* options,
                                           const int* const lists[4], const std::uintptr_t* const types[2],
                                           const char* failure, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    check_mpi(communicator(comm));
    const auto get_problem = [&] { return given_problem(strategy, *options, 1, nullptr, failure); };
    *plan = make_given(communicator(comm), true, get_problem, [&](const dr_problem& problem, Context& context) {
      std::vector<MPI_Datatype> handles[2];
      for (std::size_t side = 0; side < 2; ++side)
        for (int rank = 0; rank < context.size(); ++rank) handles[side].push_back((MPI_Datatype)(types[side][rank]));
      return typed_sides({lists[0], lists[1], handles[0].data()}, {lists[2], lists[3], handles[1].data()}, problem,
                         context);
    });
  });
}

/// dr_plan_set_arrays() for several tensors. \param arrays  extents and strides of each source and target in turn.
DR_API int dr_python_plan_set_arrays(dr_plan* plan, const program::Numbers (*arrays)[4]) {
  return guarded(DR_ERROR_PLAN, "plan", [&] {
    plan->plan->check_idle();
    std::vector<LocalArray> sources, targets;
    for (std::size_t t = 0; t < plan->plan->problem().tensors.size(); ++t) {
      sources.push_back({decoded(arrays[t][0]), decoded(arrays[t][1])});
      targets.push_back({decoded(arrays[t][2]), decoded(arrays[t][3])});
    }
    plan->plan->set_arrays(sources, targets);
  });
}

/// The binary interface of the MPI that the library is compiled for.
DR_API const char* dr_python_mpi_interface() { return library::mpi_interface(MPI_COMM_WORLD); }

/// Whether all ranks pass one number, which is not 0. Collective.
DR_API int dr_python_agree(std::uintptr_t comm, std::uint64_t mine) {
  if (!mpi_runs()) return 0;
  const MpiTurn turn;
  std::uint64_t range[2] = {mine, ~mine}, lowest[2] = {0, 0};
  if (MPI_Allreduce(range, lowest, 2, MPI_UINT64_T, MPI_MIN, communicator(comm)) != MPI_SUCCESS) return 0;
  return lowest[0] == ~lowest[1] && mine != 0;
}

/// Writes the name of the calling thread's device, cut to `nbytes` with the zero at its end.
DR_API int dr_python_device_name(char* name, std::int64_t nbytes) {
  return guarded(DR_ERROR_MEMORY, "GPU", [&] {
    const std::string found = current_device().name();
    name[found.copy(name, static_cast<std::size_t>(nbytes) - 1)] = '\0';
  });
}

/// Waits for what was enqueued on the default stream.
DR_API int dr_python_device_synchronize() {
  return guarded(DR_ERROR_EXECUTE, "GPU", [&] { current_device().synchronize(nullptr); });
}

DR_API int dr_python_device_allocate(std::int64_t nbytes, void** memory) {
  return guarded(DR_ERROR_MEMORY, "DeviceArray", [&] {
    const DeviceHandle made = nbytes > 0 ? current_device().allocate(nbytes) : nullptr;
    *memory = made.get();
    const std::lock_guard<std::mutex> locked(device_arrays_guard);
    if (made) device_arrays[*memory] = made;
  });
}

DR_API void dr_python_device_free(void* memory) {
  const std::lock_guard<std::mutex> locked(device_arrays_guard);
  device_arrays.erase(memory);
}

/// Copies between main memory and the device's, or within the latter; waits for what was enqueued before.
DR_API int dr_python_device_copy(void* target, const void* source, std::int64_t nbytes) {
  return guarded(DR_ERROR_EXECUTE, "DeviceArray", [&] {
    if (nbytes == 0) return;
    Device& device = current_device();
    const bool from_device = device.device_of(source) >= 0, to_device = device.device_of(target) >= 0;
    const bool within = from_device && to_device;
    const PinnedBuffer staged(device, within ? 0 : nbytes);
    if (!from_device) std::memcpy(staged.at(0), source, static_cast<std::size_t>(nbytes));
    device.copy(to_device ? target : staged.at(0), from_device ? source : staged.at(0), nbytes, nullptr);
    device.synchronize(nullptr);
    if (!to_device) std::memcpy(target, staged.at(0), static_cast<std::size_t>(nbytes));
  });
}

}  // extern "C"
