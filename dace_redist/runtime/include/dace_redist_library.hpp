// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What other libraries of generated programs use of this one, such as that of contractions: its copies, memory and
/// device, and what there is once in a process: errors that wait to be raised, traces.

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dace_redist.h"

namespace dace_redist {

class Device;

namespace library {

/// The binary interface of an MPI, from its MPI_COMM_WORLD: "openmpi", "mpich" (also that of Intel MPI, Cray MPICH,
/// MVAPICH and ParaStation MPI) or "mpiabi", the standard's. What is compiled for one runs with every MPI that has it.
template <class Handle>
const char* mpi_interface(Handle world) {
  if constexpr (std::is_integral_v<Handle>)
    return "mpich";
  else
    return reinterpret_cast<std::uintptr_t>(world) == 0x101 ? "mpiabi" : "openmpi";
}

/// Communicator of Fortran's integer handle.
inline MPI_Comm communicator_of_fortran(int handle) {
#ifdef MPI_ABI_VERSION  // the standard ABI has neither MPI_Fint nor MPI_Comm_f2c
  return MPI_Comm_fromint(handle);
#else
  return MPI_Comm_f2c(handle);
#endif
}

/// Of each rank of a communicator, its rank in another one; MPI_UNDEFINED if it is not there.
DR_API std::vector<int> ranks_in(MPI_Comm comm, MPI_Comm other);

/// Hands an error to the caller of the program: as the Python exception dace_redist.RedistributionError where Python
/// called it, else as a C++ exception.
DR_API void report(const std::string& message);

/// Runs some work, and reports its error. \param title  Of what failed.
template <class Work>
void reporting(const std::string& title, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    report(title + ": " + error.what());
  }
}

/// Throws on every rank if `thrown` is set on any: there itself; elsewhere an error with the text of the lowest such
/// rank. Collective.
DR_API void throw_everywhere(MPI_Comm comm, const std::exception_ptr& thrown);

/// Completes a request of all ranks of a communicator. A rank that waits for long says for whom.
/// \param kind  what they do. \param advice  a line that follows the message; may be empty.
DR_API void complete(MPI_Request& request, MPI_Comm comm, const char* kind, const char* advice);

/// Records the period from its construction to its destruction in the trace of this rank.
class DR_API Span {
 public:
  /// \param kind  the activity, such as "contract"; a literal.
  /// \param label  of the library node; must outlive the span.
  Span(const char* kind, const char* label);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

 private:
  const char *kind_, *label_;
  std::int64_t start_;
};

/// Something that is given back with its last copy.
using Handle = std::shared_ptr<void>;

/// Memory aligned to cache lines, not touched; if it is large, in huge pages where the system has them.
DR_API Handle allocate(std::int64_t nbytes);

/// A box of elements, and where it lies on both sides of a copy: outermost dimension first, strides in elements.
struct Box {
  static constexpr int max_dims = 24;
  int ndim = 0;
  std::array<std::int64_t, max_dims> counts{}, source_strides{}, target_strides{};  ///< [ndim]
};

/// Copies a box between arrays that do not overlap.
DR_API void copy(const Box& box, std::int64_t element_bytes, const void* source, void* target);

/// The calling thread's device, which it keeps current as long as it lives.
class DR_API CurrentDevice {
 public:
  /// \throws std::exception if there is none.
  CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

  /// Tells devices apart.
  const Device* get() const { return &device_; }
  /// Memory of the device.
  Handle allocate(std::int64_t nbytes);
  /// The same, with bytes of main memory.
  Handle upload(const void* bytes, std::int64_t nbytes);
  /// A copy of a box between arrays in its memory, for enqueue().
  Handle prepare(const Box& box, std::int64_t element_bytes);

 private:
  Device& device_;
  int before_;
};

/// Enqueues a prepared copy on a stream of its device.
DR_API void enqueue(const Handle& copy, const void* source, void* target, void* stream);

}  // namespace library
}  // namespace dace_redist
