// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The handles of the C interface, and how errors become codes.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dace_redist.h"
#include "plan/joint_plan.hpp"
#include "plan/public_options.hpp"
#include "plan/registry.hpp"

struct dr_distribution {
  dace_redist::Encoding encoding;
  dace_redist::Distribution checked;
};

struct dr_plan {
  std::unique_ptr<dace_redist::Plan> plan;
  dace_redist::Distribution source, target;
  int rank = 0;
  std::string label;
  bool failed = false;
  bool started = false;  // a transfer is under way, or failed and was not waited for
  bool joint = false;    // it moves several tensors
};

/// A transfer under way.
struct dr_request {
  dr_plan* plan = nullptr;
  bool done = false;
  std::vector<const void*> sources;     // of a plan of several tensors: one address each
  std::vector<void*> targets;           // the same
  std::string failure;                  // what went wrong, if anything
  std::atomic<bool> ended{false};       // the thread
  std::unique_ptr<std::thread> thread;  // null: it is moved on by calls
};

namespace dace_redist {

/// Text of the calling thread's last error.
inline thread_local std::string last_error;

/// A wrong argument of the C interface.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// Runs `work`; what it throws becomes a code, and the text of dr_error().
template <class Work>
int guarded(int code, const char* function, const Work& work) noexcept {
  const auto failed = [function](int what, const char* message) {
    try {
      last_error = text(function, ": ", message);
    } catch (...) {
      last_error.clear();
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

/// The handles that were made and not freed yet: using another one is an error, not a crash.
class Handles {
 public:
  void add(const void* handle) {
    const std::lock_guard<std::mutex> guard(mutex_);
    handles_.insert(handle);
  }
  /// \throws ArgumentError unless the handle is one of these.
  void check(const void* handle, const char* name) const {
    if (!handle) throw ArgumentError(text(name, " is null"));
    const std::lock_guard<std::mutex> guard(mutex_);
    if (handles_.count(handle) == 0) throw ArgumentError(text(name, " is no handle, or was freed"));
  }
  void remove(const void* handle, const char* name) {
    check(handle, name);
    const std::lock_guard<std::mutex> guard(mutex_);
    handles_.erase(handle);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const void*> handles_;
};

inline Handles distributions, plans, transfers, memories;

/// A plan that can be executed or started. \throws Error if it failed, or a transfer of it is under way.
inline dr_plan& ready_plan(dr_plan* plan) {
  plans.check(plan, "plan");
  if (plan->failed) throw Error(text("\"", plan->label, "\" failed before; free it and make another plan"));
  if (plan->started) throw Error(text("a transfer of \"", plan->label, "\" is under way: wait for it first"));
  return *plan;
}

/// Runs `work` of a plan, which is of no use any more if that throws.
template <class Work>
void run_or_fail(dr_plan& plan, const Work& work) {
  try {
    work();
  } catch (...) {
    plan.failed = true;
    throw;
  }
}

/// Moves on a transfer without a thread. After a failure every call repeats the error, and does not touch the exchange.
inline void move_on(dr_request& request) {
  if (!request.failure.empty()) throw Error(request.failure);
  if (request.done) return;
  try {
    run_or_fail(*request.plan, [&] { request.done = request.plan->plan->progress(); });
  } catch (const std::exception& error) {
    request.failure = error.what();
    throw;
  }
}

inline void check_pointer(const void* pointer, const char* name) {
  if (!pointer) throw ArgumentError(text(name, " is null"));
}

/// \throws ArgumentError if an address is null of an array of which elements move.
inline void check_addresses(const dr_plan& plan, const void* source, const void* target) {
  const std::string missing = plan.plan->missing_array(source, target);
  if (!missing.empty())
    throw ArgumentError(text(missing, " is null, but elements of this rank's array are to be moved"));
}

inline void check_ndim(int ndim, const char* name) {
  if (ndim < 0 || ndim > max_dims) throw ArgumentError(text(name, " must be from 0 to ", max_dims, ", got ", ndim));
}

/// \throws ArgumentError if MPI is not running, in which it would end the process.
inline void check_mpi(MPI_Comm comm) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) throw ArgumentError("MPI is not initialized, or was finalized");
  if (comm == MPI_COMM_NULL) throw ArgumentError("comm is MPI_COMM_NULL");
}

inline void append(Encoding& encoding, const std::int64_t* values, Index count) {
  encoding.insert(encoding.end(), values, values + count);
}

inline void make_distribution(Encoding encoding, dr_distribution** distribution) {
  Distribution checked(encoding);
  auto made = std::make_unique<dr_distribution>(dr_distribution{std::move(encoding), std::move(checked)});
  distributions.add(made.get());
  *distribution = made.release();
}

/// Extents, then strides, of a local array, as a plan takes them.
inline Encoding local_encoding(const Distribution& distribution, int rank, const std::int64_t* shape,
                               const std::int64_t* strides) {
  std::vector<Index> extents = distribution.local_shape(rank);
  if (shape) std::copy_n(shape, extents.size(), extents.begin());
  Encoding encoding = extents;
  if (strides)
    append(encoding, strides, static_cast<Index>(extents.size()));
  else
    for (const Index stride : c_strides(extents)) encoding.push_back(stride);
  return encoding;
}

/// The axes and the region of a problem, as an IndexMap takes them.
inline Encoding index_map_of(const dr_problem& problem, int ndim) {
  const bool whole = !problem.region_shape;
  if (whole != !problem.region_source_offset || whole != !problem.region_target_offset)
    throw ArgumentError("a region needs region_source_offset, region_target_offset and region_shape");
  Encoding encoding;
  if (whole && !problem.axes) return encoding;
  for (int i = 0; i < ndim; ++i) encoding.push_back(problem.axes ? problem.axes[i] : i);
  if (whole) return encoding;
  append(encoding, problem.region_source_offset, ndim);
  append(encoding, problem.region_target_offset, ndim);
  append(encoding, problem.region_shape, ndim);
  return encoding;
}

inline Description describe(const dr_problem& problem, int rank) {
  distributions.check(problem.source, "problem->source");
  distributions.check(problem.target, "problem->target");
  Description description;
  description.label = problem.label ? problem.label : "redistribution";
  description.strategy = problem.strategy ? problem.strategy : "Hierarchical";
  description.element_bytes = problem.element_bytes;
  description.options = internal_options(problem.options);
  description.source = problem.source->encoding;
  description.target = problem.target->encoding;
  description.source_local =
      local_encoding(problem.source->checked, rank, problem.source_shape, problem.source_strides);
  description.target_local =
      local_encoding(problem.target->checked, rank, problem.target_shape, problem.target_strides);
  description.index_map = index_map_of(problem, problem.source->checked.ndim());
  description.operation = internal_operation(problem.operation);
  description.source_memory = internal_memory(problem.source_memory, "source_memory");
  description.target_memory = internal_memory(problem.target_memory, "target_memory");
  return description;
}

/// Gives a description arrays in C order unless it has local arrays.
inline void complete(Description& description, int rank) {
  const Distribution source(description.source, "source"), target(description.target, "target");
  if (description.source_local.empty()) description.source_local = local_encoding(source, rank, nullptr, nullptr);
  if (description.target_local.empty()) description.target_local = local_encoding(target, rank, nullptr, nullptr);
}

/// A plan as a handle, for C-order arrays unless the description has local arrays. Collective.
inline dr_plan* make_handle(Description description, MPI_Comm comm) {
  check_mpi(comm);
  MakePlan make = nullptr;
  auto made = std::unique_ptr<dr_plan>();
  all_or_none(comm, [&] {
    Distribution source(description.source, "source"), target(description.target, "target");
    const int rank = comm_rank(comm);
    complete(description, rank);
    make = plan_maker(description);
    made.reset(
        new dr_plan{nullptr, std::move(source), std::move(target), rank, description.label, false, false, false});
  });
  made->plan = make(description, comm);
  plans.add(made.get());
  return made.release();
}

/// A plan of several tensors as a handle. Collective.
inline dr_plan* make_joint_handle(std::vector<Description> tensors, MPI_Comm comm) {
  check_mpi(comm);
  auto made = std::unique_ptr<dr_plan>();
  Description joint;
  const Index count = static_cast<Index>(tensors.size());
  Index range[2] = {count, -count};
  check(MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT64_T, MPI_MIN, comm), "MPI_Allreduce");
  if (range[0] != -range[1])
    throw Error(text("the ranks differ: the number of tensors is from ", range[0], " to ", -range[1]));
  if (count == 0) throw ArgumentError("count must be at least 1, got 0");
  all_or_none(comm, [&] {
    const std::string& strategy = tensors.front().strategy;
    if (strategy != "Hierarchical" && strategy != "Pack")
      throw Error(text("several tensors at once move by Hierarchical or Pack, got ", strategy));
    for (Description& tensor : tensors) {
      if (tensor.on_device())
        throw Error("several tensors at once move between arrays in main memory; take a plan for each");
      complete(tensor, comm_rank(comm));
      tensor.options = tensors.front().options;
      if (tensor.strategy != strategy)
        throw Error(text("several tensors at once move by one strategy, got ", strategy, " and ", tensor.strategy));
    }
    joint = tensors.front();
    joint.tensors = std::move(tensors);
    Distribution source(joint.source, "source"), target(joint.target, "target");
    made.reset(
        new dr_plan{nullptr, std::move(source), std::move(target), comm_rank(comm), joint.label, false, false, true});
  });
  made->plan = make_joint_plan(joint, comm);
  plans.add(made.get());
  return made.release();
}

}  // namespace dace_redist
