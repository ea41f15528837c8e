// SPDX-License-Identifier: BSD-3-Clause
#include "api/handles.hpp"

#include <algorithm>
#include <exception>
#include <new>

namespace dace_redist {
namespace {

/// Handles outlive static objects of the program, which may free them.
Handles& never_freed() { return *new Handles; }

}  // namespace

std::string& last_error() {
  static thread_local std::string message;
  return message;
}

int guarded(int code, const char* function, const std::function<void()>& work) noexcept {
  const auto failed = [function](int what, const char* message) {
    try {
      last_error() = text(function, ": ", message);
    } catch (...) {
      last_error().clear();
    }
    return what;
  };
  try {
    work();
    return DR_SUCCESS;
  } catch (const ArgumentError& error) {
    return failed(DR_ERROR_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return failed(DR_ERROR_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(code, error.what());
  } catch (...) {
    return failed(code, "unknown error");
  }
}

void Handles::add(const void* handle) {
  const std::lock_guard<std::mutex> guard(mutex_);
  handles_.insert(handle);
}

void Handles::check(const void* handle, const char* name) const {
  if (!handle) throw ArgumentError(text(name, " is null"));
  const std::lock_guard<std::mutex> guard(mutex_);
  if (handles_.count(handle) == 0) throw ArgumentError(text(name, " is not a valid handle (already freed?)"));
}

void Handles::remove(const void* handle, const char* name) {
  check(handle, name);
  const std::lock_guard<std::mutex> guard(mutex_);
  handles_.erase(handle);
}

Handles& Handles::distributions() {
  static Handles& handles = never_freed();
  return handles;
}
Handles& Handles::plans() {
  static Handles& handles = never_freed();
  return handles;
}
Handles& Handles::requests() {
  static Handles& handles = never_freed();
  return handles;
}
Handles& Handles::memories() {
  static Handles& handles = never_freed();
  return handles;
}

dr_plan& ready_plan(dr_plan* plan) {
  Handles::plans().check(plan, "plan");
  const std::string& label = plan->plan->problem().label;
  if (plan->failed) throw Error(text("\"", label, "\" failed before; free it and make another plan"));
  if (plan->started) throw Error(text("a transfer of \"", label, "\" is under way: wait for it first"));
  return *plan;
}

void check_pointer(const void* pointer, const char* name) {
  if (!pointer) throw ArgumentError(text(name, " is null"));
}

void check_addresses(dr_plan& plan, const void* const* sources, void* const* targets) {
  const std::string missing = plan.plan->missing_array(sources, targets);
  if (missing.empty()) return;
  const std::string message = text(missing, " is null, but elements of this rank's array are to be moved");
  plan.failed = true;
  plan.plan->fail(message);
  throw ArgumentError(message);
}

void check_ndim(int ndim, const char* name) {
  if (ndim < 0 || ndim > max_dims) throw ArgumentError(text(name, " must be from 0 to ", max_dims, ", got ", ndim));
}

void check_mpi(MPI_Comm comm) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) throw ArgumentError("MPI is not initialized, or was finalized");
  if (comm == MPI_COMM_NULL) throw ArgumentError("comm is MPI_COMM_NULL");
}

ElementOperation operation_of(const dr_operation& operation) {
  const auto checked = [](int value, std::int64_t count, const char* name) {
    if (value < 0 || value >= count) throw Error(text(name, " must be from 0 to ", count - 1, ", got ", value));
    return value;
  };
  ElementOperation result;
  result.source = static_cast<ElementType>(checked(operation.source_type, element_type_count, "source_type"));
  result.target = static_cast<ElementType>(checked(operation.target_type, element_type_count, "target_type"));
  result.alpha = {operation.alpha[0], operation.alpha[1]};
  result.beta = {operation.beta[0], operation.beta[1]};
  result.conjugate = operation.conjugate != 0;
  result.reduction = static_cast<Reduction>(checked(operation.op, reduction_count, "op"));
  return result;
}

Memory memory_of(int memory, const char* name) {
  if (memory != DR_MAIN_MEMORY && memory != DR_DEVICE_MEMORY)
    throw Error(text(name, " must be DR_MAIN_MEMORY or DR_DEVICE_MEMORY, got ", memory));
  return static_cast<Memory>(memory);
}

void make_distribution(const Encoding& encoding, dr_distribution** distribution) {
  auto made = std::make_unique<dr_distribution>(dr_distribution{Distribution(encoding)});
  Handles::distributions().add(made.get());
  *distribution = made.release();
}

namespace {

/// Axes and region of a problem, as an IndexMap takes them.
Encoding index_map_of(const dr_problem& problem, int ndim) {
  const bool whole = !problem.region_shape;
  if (whole != !problem.region_source_offset || whole != !problem.region_target_offset)
    throw ArgumentError("a region needs region_source_offset, region_target_offset and region_shape");
  Encoding encoding;
  if (whole && !problem.axes) return encoding;
  for (int i = 0; i < ndim; ++i) encoding.push_back(problem.axes ? problem.axes[i] : i);
  if (whole) return encoding;
  for (const std::int64_t* part : {problem.region_source_offset, problem.region_target_offset, problem.region_shape})
    encoding.insert(encoding.end(), part, part + ndim);
  return encoding;
}

}  // namespace

LocalArray local_array_of(const Distribution& distribution, int rank, const std::int64_t* shape,
                          const std::int64_t* strides) {
  if (!shape && !strides) return {};
  LocalArray array{distribution.local_shape(rank), {}};
  if (shape) std::copy_n(shape, array.shape.size(), array.shape.begin());
  array.strides = c_strides(array.shape);
  if (strides) std::copy_n(strides, array.shape.size(), array.strides.begin());
  return array;
}

TensorProblem tensor_of(const dr_problem& problem) {
  Handles::distributions().check(problem.source, "problem->source");
  Handles::distributions().check(problem.target, "problem->target");
  const Distribution source(problem.source->checked.encoding(), "source");
  const Distribution target(problem.target->checked.encoding(), "target");
  TensorProblem tensor{source, target, problem.element_bytes};
  tensor.index_map = index_map_of(problem, source.ndim());
  tensor.operation = operation_of(problem.operation);
  tensor.source_memory = memory_of(problem.source_memory, "source_memory");
  tensor.target_memory = memory_of(problem.target_memory, "target_memory");
  return tensor;
}

dr_plan* make_handle(MPI_Comm comm, bool joint, const std::function<Problem()>& describe) {
  check_mpi(comm);
  auto made = std::make_unique<dr_plan>();
  made->joint = joint;
  made->plan = Plan::make(comm, describe);
  Handles::plans().add(made.get());
  return made.release();
}

void run_plan(dr_plan& plan, const void* const* sources, void* const* targets) {
  static std::mutex one_at_a_time;
  static const int level = [] {
    int found = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&found), "MPI_Query_thread");
    return found;
  }();
  std::unique_lock<std::mutex> locked(one_at_a_time, std::defer_lock);
  if (level == MPI_THREAD_SERIALIZED) locked.lock();
  try {
    plan.plan->run(sources, targets);
  } catch (...) {
    plan.failed = true;
    throw;
  }
}

}  // namespace dace_redist
