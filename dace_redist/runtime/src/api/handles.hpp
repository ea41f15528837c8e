// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The handles of the C interface, and how errors become codes.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "dace_redist.h"
#include "dace_redist_program.hpp"
#include "plan/plan.hpp"

struct dr_distribution {
  dace_redist::Distribution checked;
};

struct dr_plan {
  dace_redist::PlanPointer plan;
  bool joint;  ///< arrays are lists of addresses
};

/// A transfer under way.
struct dr_request {
  dace_redist::Plan* plan;
};

namespace dace_redist {

/// Text of the calling thread's last error.
std::string& last_error();

/// Runs `work`; what it throws becomes a code, and the text of dr_error().
int guarded(int code, const char* function, const std::function<void()>& work) noexcept;

void check_pointer(const void* pointer, const char* name);
/// \throws ArgumentError unless MPI is running, which would end the process.
void check_mpi(MPI_Comm comm);

/// The handles that were made and not freed: using another one is an error, not a crash.
class Handles {
 public:
  void add(const void* handle);
  /// \throws ArgumentError unless the handle is one of these.
  void check(const void* handle, const char* name) const;
  void remove(const void* handle, const char* name);

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const void*> handles_;
};

/// The handles of a type; those of memory have type void. They outlive static objects of the program, which may free
/// them.
template <class T>
Handles& handles() {
  static auto& all = *new Handles;
  return all;
}

/// Makes an object a handle.
template <class T>
T* add_handle(std::unique_ptr<T> made) {
  handles<T>().add(made.get());
  return made.release();
}

/// Takes an object back, and sets the handle to null. \throws ArgumentError
template <class T>
std::unique_ptr<T> take_handle(T** handle, const char* name) {
  check_pointer(handle, name);
  handles<T>().remove(*handle, text("*", name).c_str());
  return std::unique_ptr<T>(std::exchange(*handle, nullptr));
}

/// A tensor as Python passes it: distributions and index map are encoded.
struct EncodedTensor {
  Index element_bytes;
  program::Numbers source, target, index_map;
  dr_operation operation;
  int source_memory, target_memory;
};

/// Makes a plan as a handle. Collective.
dr_plan* make_plan(MPI_Comm comm, bool joint, const std::function<Problem()>& describe);

/// Starts to move the tensors of a plan. \param progress  a dr_progress.
void start_plan(Plan& plan, const void* const* sources, void* const* targets, int progress);

/// \throws Error if an encoding is wrong, or a number none of its enumeration.
TensorProblem decoded(const EncodedTensor& tensor);

}  // namespace dace_redist
