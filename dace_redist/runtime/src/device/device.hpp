// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The interface of a device with memory of its own. A GPU has it by CUDA (libdace_redist_cuda).
/// Start reading at: Device.

#include <array>
#include <cstdint>
#include <string>

#include "dace_redist_types.h"
#include "device/copy_kernel.hpp"

namespace dace_redist {

/// A mark in a stream, which has completed when everything before it has. CUDA's cudaEvent_t.
using Event = void*;

/// An address in an allocation of a device, for another process, which maps the allocation.
struct DeviceMemoryName {
  std::array<char, 64> handle{};  ///< as the device names an allocation
  std::uint64_t allocation = 0;   ///< tells an allocation from a later one of the same address
  std::int64_t offset = 0;        ///< bytes from the start of the allocation
  std::int64_t process = 0;       ///< of the owner
};

/// A device of this process. Plans of different threads may use it at the same time. Failures are Errors with the
/// device's own text.
class DR_API Device : public TileRunner {
 public:
  explicit Device(bool known_to_mpi) : known_to_mpi_(known_to_mpi) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// For messages, such as "GPU 0 (NVIDIA H200)".
  virtual std::string name() const = 0;
  /// Whether MPI takes addresses in its memory. One that does not crashes, so MPI is asked when it runs.
  bool known_to_mpi() const { return known_to_mpi_; }
  /// Number of the device in this process.
  virtual int number() const = 0;
  /// Tells devices of a machine apart, whatever their numbers in a process.
  virtual std::array<char, 16> unique_id() const = 0;

  /// Makes this the calling thread's device. \return the number of the one before, for restore().
  virtual int make_current() = 0;
  virtual void restore(int number) noexcept = 0;

  /// \throws Error with the bytes needed and those free.
  virtual DeviceHandle allocate(std::int64_t nbytes) = 0;
  /// Page-locks main memory of this process, so that it is copied beside other work.
  virtual DeviceHandle pin(void* memory, std::int64_t nbytes) = 0;
  /// The number of the device in whose memory an address lies; -1: in main memory.
  virtual int device_of(const void* address) const = 0;

  virtual DeviceHandle make_stream() = 0;
  virtual DeviceHandle make_event() = 0;
  /// Marks the work enqueued so far.
  virtual void record(Event event, Stream stream) = 0;
  /// Has work enqueued afterwards run after the event.
  virtual void wait(Stream stream, Event event) = 0;
  /// Whether an event has completed; one that was never recorded has.
  virtual bool completed(Event event) = 0;
  /// Waits for all enqueued work.
  virtual void synchronize(Stream stream) = 0;

  /// Enqueues a copy of bytes between any two of main memory, which must be pinned, and memory of devices.
  virtual void copy(void* target, const void* source, std::int64_t nbytes, Stream stream) = 0;

  /// Names memory for other processes; false if this memory cannot be mapped by them.
  virtual bool name_memory(const void* memory, DeviceMemoryName& name) = 0;
  /// Whether memory of the device of that unique id can be mapped, and reached by kernels of this one.
  virtual bool reaches(const std::array<char, 16>& unique_id) = 0;
  /// Maps another process's allocation. \return its start.
  virtual DeviceHandle map(const DeviceMemoryName& name) = 0;

 private:
  const bool known_to_mpi_;
};

/// The calling thread's device. \throws Error if this machine has none, or the library for it cannot be loaded.
DR_API Device& current_device();

}  // namespace dace_redist
