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

#include "api/groups.hpp"
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

/// The code of an exception, whose text becomes that of dr_error(). \param code  of an Error.
int code_of(const std::exception_ptr& thrown, int code, const char* function) noexcept;

/// Runs `work`; what it throws becomes a code. Allocates nothing before.
template <class Work>
int guarded(int code, const char* function, const Work& work) noexcept {
  return code_of(caught(work), code, function);
}

void check_pointer(const void* pointer, const char* name);
/// Whether MPI may be called, which would else end the process.
bool mpi_runs();
/// \throws ArgumentError unless MPI runs, and the communicator is one.
void check_mpi();
void check_mpi(MPI_Comm comm);

/// The handles that were made and not freed: using another one is an error, not a crash.
class Handles {
 public:
  void add(const void* handle);
  /// \throws ArgumentError unless the handle is one of these.
  void check(const void* handle, const char* name) const;
  void remove(const void* handle, const char* name);
  /// Nothing if it is none of these.
  void forget(const void* handle);

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

/// A handle that was not given out.
template <class T>
struct ForgetHandle {
  void operator()(T* handle) const {
    handles<T>().forget(handle);
    delete handle;
  }
};
template <class T>
using NewHandle = std::unique_ptr<T, ForgetHandle<T>>;

/// Makes an object a handle.
template <class T>
NewHandle<T> make_handle(T object) {
  NewHandle<T> made(new T(std::move(object)));
  handles<T>().add(made.get());
  return made;
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
template <class Describe>
dr_plan* make_plan(MPI_Comm comm, bool joint, const Describe& describe) {
  NewHandle<dr_plan> made;
  const auto allocate_and_describe = [&] {  // a rank that runs out of memory here tells the others
    made = make_handle(dr_plan{nullptr, joint});
    return describe();
  };
  PlanPointer plan = Plan::make(comm, std::cref(allocate_and_describe));
  made->plan = std::move(plan);
  return made.release();
}

/// The same for problems, which a communicator or an intercommunicator may have.
/// \param sends     of the problem of this rank; below 0: it has none.
/// \param describe  called with the ranks.
template <class Describe>
dr_plan* make_plan(MPI_Comm comm, int sends, bool joint, const Describe& describe) {
  check_mpi(comm);
  const MpiTurn turn;
  const PlanRanks ranks(comm, sends);
  return make_plan(ranks.comm(), joint, [&] { return describe(ranks); });
}

/// Starts to move the tensors of a plan. \param progress  a dr_progress.
void start_plan(Plan& plan, const void* const* sources, void* const* targets, int progress);

Encoding decoded(const program::Numbers& numbers);
/// \throws Error if a number is none of its enumeration.
ElementOperation decoded(const dr_operation& operation);

/// Label, strategy and options of a problem, without its tensor.
Problem settings_of(const dr_problem& problem);

/// A problem of tensors whose strategy and options are equal.
Problem problem_of(int count, const dr_problem* problems, const PlanRanks& ranks);

/// A tensor in arrays in C order. \throws Error if a number is none of its enumeration.
TensorProblem make_tensor(Distribution source, Distribution target, Index element_bytes, Encoding index_map,
                          const dr_operation& operation, int source_memory, int target_memory);
/// \throws Error if an encoding is wrong, or a number none of its enumeration.
TensorProblem decoded(const EncodedTensor& tensor);

/// Lists of blocks, as dr_plan_create_messages() takes them.
struct BlockLists {
  std::int64_t send_count;
  const dr_block* sends;
  std::int64_t receive_count;
  const dr_block* receives;
};

/// What this rank sends and receives by a plan for `problem`. \throws Error if an argument is wrong.
MessageSides block_sides(const BlockLists& lists, const dr_problem& problem, Context& context);
MessageSides typed_sides(const TypedSide& source, const TypedSide& target, const dr_problem& problem, Context& context);

/// Makes a plan as a handle. Collective.
/// \param joint  arrays are lists of one address.
/// \param get_problem, describe  called once on each rank; what they throw on one rank is an error on all.
dr_plan* make_given(MPI_Comm comm, bool joint, const std::function<dr_problem()>& get_problem,
                    const std::function<MessageSides(const dr_problem& problem, Context& context)>& describe);

}  // namespace dace_redist
