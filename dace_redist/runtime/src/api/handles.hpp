// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The handles of the C interface, and how errors become codes.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "dace_redist.h"
#include "plan/plan.hpp"

struct dr_distribution {
  dace_redist::Distribution checked;
};

struct dr_plan {
  std::unique_ptr<dace_redist::Plan> plan;
  bool joint = false;    ///< arrays are lists of addresses
  bool failed = false;   ///< of no use any more
  bool started = false;  ///< a transfer is under way, or failed and was not waited for
};

/// A transfer under way.
struct dr_request {
  dr_plan* plan = nullptr;
  bool done = false;
  std::string failure;                  // empty: none
  std::atomic<bool> ended{false};       // the thread
  std::unique_ptr<std::thread> thread;  // null: calls advance the transfer
};

namespace dace_redist {

/// A wrong argument of the C interface.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// Text of the calling thread's last error.
std::string& last_error();

/// Runs `work`; what it throws becomes a code, and the text of dr_error().
int guarded(int code, const char* function, const std::function<void()>& work) noexcept;

/// The handles that were made and not freed: using another one is an error, not a crash.
class Handles {
 public:
  void add(const void* handle);
  /// \throws ArgumentError unless the handle is one of these.
  void check(const void* handle, const char* name) const;
  void remove(const void* handle, const char* name);

  static Handles& distributions();
  static Handles& plans();
  static Handles& requests();
  static Handles& memories();

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const void*> handles_;
};

/// A plan that can be executed or started. \throws Error if it failed, or a transfer of it is under way.
dr_plan& ready_plan(dr_plan* plan);

void check_pointer(const void* pointer, const char* name);
/// \throws ArgumentError if an array is null of which elements move; tells the other ranks.
void check_addresses(dr_plan& plan, const void* const* sources, void* const* targets);
void check_ndim(int ndim, const char* name);
/// \throws ArgumentError unless MPI is running, which would end the process.
void check_mpi(MPI_Comm comm);

/// The operation of the C interface. \throws Error if a number is none of its enumeration.
ElementOperation operation_of(const dr_operation& operation);
/// \throws Error if the number is none of dr_memory.
Memory memory_of(int memory, const char* name);

void make_distribution(const Encoding& encoding, dr_distribution** distribution);

/// A problem of the C interface. \throws ArgumentError
TensorProblem tensor_of(const dr_problem& problem);
LocalArray local_array_of(const Distribution& distribution, int rank, const std::int64_t* shape,
                          const std::int64_t* strides);

/// A plan as a handle. Collective.
dr_plan* make_handle(MPI_Comm comm, bool joint, const std::function<Problem()>& describe);

/// Runs a transfer in one go. Under MPI_THREAD_SERIALIZED one thread at a time.
void run_plan(dr_plan& plan, const void* const* sources, void* const* targets);

}  // namespace dace_redist
