// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What programs that DaCe generates call. Each function reports its errors by itself: as the Python exception
/// dace_redist.RedistributionError where Python called the program, else as a C++ exception.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>

#include "dace_redist.h"

namespace dace_redist {
namespace program {

/// A list of numbers that is not owned: a braced list, or an array with its length; by default empty.
struct Numbers {
  Numbers() = default;
  template <std::size_t Count>
  Numbers(const std::int64_t (&list)[Count]) : begin(list), count(Count) {}
  Numbers(const std::int64_t* first, std::int64_t length) : begin(first), count(static_cast<std::size_t>(length)) {}

  const std::int64_t* begin = nullptr;
  std::size_t count = 0;
};

/// What a program knows of the redistribution of a tensor: encoded distributions (see Distribution), extents, then
/// strides in elements, of this rank's arrays, which elements move where to (see IndexMap), what is computed with
/// them, and a dr_memory for each side: where the arrays lie.
struct Arguments {
  Numbers source, source_local;
  Numbers target, target_local;
  std::int64_t element_bytes;
  dr_options options;
  Numbers index_map = {};
  dr_operation operation = {DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP, DR_OPAQUE, 0, DR_OPAQUE, 0};
  int source_memory = DR_MAIN_MEMORY;
  int target_memory = DR_MAIN_MEMORY;
};

/// The plan of a library node, of one or several tensors. Those described by constants of the program are given when it
/// starts, and each run gives an empty list. Others are given at each run: the plan is made at the first one, and again
/// only if what it was made from changes, as sizes that depend on a loop. So it is for another communicator. A stream
/// counts where an array lies in a device's memory, see dr_plan_set_stream().
class DR_API Plan {
 public:
  /// \param kind, label  of the node, for errors.
  /// \param strategy  how to move.
  Plan(const char* kind, const char* label, const char* strategy);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Takes tensors described by constants, and makes the plan ahead of its first run. Collective.
  /// \param comm  the null communicator if only the first run knows it.
  void make(MPI_Comm comm, std::initializer_list<Arguments> tensors);
  /// Moves the tensors. Collective.
  void run(MPI_Comm comm, std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
           std::initializer_list<void*> targets, void* stream = nullptr);
  /// Starts to move the tensor; wait() has to follow. Collective.
  /// \param progress  a dr_progress: who moves it on.
  /// \param request  gets what wait() needs.
  void start(MPI_Comm comm, std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
             std::initializer_list<void*> targets, int progress, std::int64_t* request, void* stream = nullptr);
  /// Waits until what was started is done.
  /// \param stream  of what uses the result; none: that of the start.
  void wait(std::optional<void*> stream = {});

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Waits until a tensor is moved; what a RedistributeWait node calls. \param stream  as of Plan::wait().
inline void wait(const std::int64_t* request, std::optional<void*> stream = {}) {
  reinterpret_cast<Plan*>(*request)->wait(stream);
}

/// Memory for arrays of which only one is in use at a time: of the largest of the sizes, in bytes.
/// \param on_node  whether other ranks of the node are to see it.
DR_API void* allocate(bool on_node, std::initializer_list<std::int64_t> nbytes);
/// Frees memory of allocate().
DR_API void free(void* memory) noexcept;

}  // namespace program
}  // namespace dace_redist
