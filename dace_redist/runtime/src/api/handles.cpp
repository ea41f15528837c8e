// SPDX-License-Identifier: BSD-3-Clause
#include "api/handles.hpp"

#include <exception>
#include <new>

#include "device/device_objects.hpp"

namespace dace_redist {
namespace {

void check_known(bool known, const char* name) {
  if (!known) throw ArgumentError(text(name, " is not a valid handle (already freed?)"));
}

std::int64_t checked(int value, std::int64_t count, const char* name) {
  if (value < 0 || value >= count) throw Error(text(name, " must be from 0 to ", count - 1, ", got ", value));
  return value;
}

Memory decoded(int memory, const char* name) {
  if (memory != DR_MAIN_MEMORY && memory != DR_DEVICE_MEMORY)
    throw Error(text(name, " must be DR_MAIN_MEMORY or DR_DEVICE_MEMORY, got ", memory));
  return static_cast<Memory>(memory);
}

}  // namespace

std::string& last_error() {
  alignas(std::string) static thread_local char memory[sizeof(std::string)];
  static thread_local std::string* message = nullptr;
  struct Deleter {
    ~Deleter() { std::exchange(message, nullptr)->~basic_string(); }
  };
  if (!message) {  // also in functions that run at the end of a program, after the objects of its thread are gone
    message = new (memory) std::string;
    static thread_local Deleter deleter;
  }
  return *message;
}

int code_of(const std::exception_ptr& thrown, int code, const char* function) noexcept {
  if (!thrown) return DR_SUCCESS;
  try {
    last_error() = "out of memory";  // allocates nothing
    last_error() = text(function, ": ", message_of(thrown));
    std::rethrow_exception(thrown);
  } catch (const ArgumentError&) {
    return DR_ERROR_ARGUMENT;
  } catch (const std::bad_alloc&) {
    return DR_ERROR_MEMORY;
  } catch (...) {
    return code;
  }
}

void check_pointer(const void* pointer, const char* name) {
  if (!pointer) throw ArgumentError(text(name, " is null"));
}

bool mpi_runs() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

void check_mpi() {
  if (!mpi_runs())
    throw ArgumentError("MPI is not initialized (by MPI_Init: a session is not enough), or was finalized");
}

void check_mpi(MPI_Comm comm) {
  check_mpi();
  if (comm == MPI_COMM_NULL) throw ArgumentError("comm is MPI_COMM_NULL");
  if (comm == MPI_Comm()) throw ArgumentError("comm is not a communicator");  // that of a wrong number of Fortran
}

void Handles::add(const void* handle) {
  const std::lock_guard<std::mutex> guard(mutex_);
  handles_.insert(handle);
}

void Handles::check(const void* handle, const char* name) const {
  check_pointer(handle, name);
  const std::lock_guard<std::mutex> guard(mutex_);
  check_known(handles_.count(handle) > 0, name);
}

void Handles::remove(const void* handle, const char* name) {
  check_pointer(handle, name);
  const std::lock_guard<std::mutex> guard(mutex_);
  check_known(handles_.erase(handle) > 0, name);
}

void Handles::forget(const void* handle) {
  const std::lock_guard<std::mutex> guard(mutex_);
  handles_.erase(handle);
}

void start_plan(Plan& plan, const void* const* sources, void* const* targets, int progress) {
  if (progress == DR_PROGRESS_CALLS) return plan.start(sources, targets);
  if (progress != DR_PROGRESS_THREAD)
    throw ArgumentError(text("progress must be DR_PROGRESS_CALLS or DR_PROGRESS_THREAD, got ", progress));
  Device* const device = plan.problem().tensors.front().on_device() ? &current_device() : nullptr;
  plan.start_thread(sources, targets, [device, stream = plan.stream()] {
    if (!device) return;
    const CurrentDevice current(*device);
    device->synchronize(stream);  // every other stream finds the result
  });
}

ElementOperation decoded(const dr_operation& operation) {
  ElementOperation result;
  const char* const source_name = in_fortran() ? "type" : "source_type";
  result.source = static_cast<ElementType>(checked(operation.source_type, element_type_count, source_name));
  result.target = static_cast<ElementType>(checked(operation.target_type, element_type_count, "target_type"));
  result.alpha = {operation.alpha[0], operation.alpha[1]};
  result.beta = {operation.beta[0], operation.beta[1]};
  result.conjugate = operation.conjugate != 0;
  result.reduction = static_cast<Reduction>(checked(operation.op, reduction_count, "op"));
  result.wire = static_cast<ElementType>(checked(operation.wire_type, element_type_count, "wire_type"));
  result.wire_within_nodes = operation.wire_within_nodes != 0;
  result.accumulate =
      static_cast<ElementType>(checked(operation.accumulate_type, element_type_count, "accumulate_type"));
  result.reproducible = operation.reproducible != 0;
  return result;
}

Problem settings_of(const dr_problem& problem) {
  return {problem.label ? problem.label : "redistribution",
          problem.strategy ? problem.strategy : "Hierarchical",
          problem.options,
          {}};
}

Encoding decoded(const program::Numbers& numbers) { return {numbers.begin, numbers.begin + numbers.count}; }

TensorProblem make_tensor(Distribution source, Distribution target, Index element_bytes, Encoding index_map,
                          const dr_operation& operation, int source_memory, int target_memory) {
  TensorProblem tensor{std::move(source), std::move(target), element_bytes, std::move(index_map), decoded(operation)};
  tensor.source_memory = decoded(source_memory, "source_memory");
  tensor.target_memory = decoded(target_memory, "target_memory");
  return tensor;
}

TensorProblem decoded(const EncodedTensor& tensor) {
  return make_tensor(Distribution(decoded(tensor.source), "source"), Distribution(decoded(tensor.target), "target"),
                     tensor.element_bytes, decoded(tensor.index_map), tensor.operation, tensor.source_memory,
                     tensor.target_memory);
}

}  // namespace dace_redist
