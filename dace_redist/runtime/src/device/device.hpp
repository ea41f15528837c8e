// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What a redistribution needs of a device with memory of its own. A GPU has it by CUDA (libdace_redist_cuda); main
/// memory stands in for one where there is none, so that everything above this interface is tested anywhere.
/// Start reading at: Device.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "copy/element_steps.hpp"
#include "core/export.hpp"
#include "core/memory.hpp"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// A mark in a stream, which has completed when everything before it has. CUDA's cudaEvent_t.
using Event = void*;

/// A copy of a block that is made with others in one launch.
struct DeviceCopy {
  StridedBlock block;
  int source = 0, target = 0;  ///< which of the launch's addresses its offsets count from
};

/// Copies, or what a step does with elements, that a device makes in one launch; no element is written twice.
class CopyKernel {
 public:
  virtual ~CopyKernel() = default;

  /// Enqueues all copies.
  /// \param sources, targets  the addresses that the copies name by number, all in memory that the device reaches.
  virtual void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream) = 0;
};

/// What another process needs to map an allocation of a device, and where in it something lies.
struct DeviceMemoryName {
  std::array<char, 64> handle{};  ///< as the device names an allocation
  std::uint64_t allocation = 0;   ///< tells an allocation from a later one of the same address
  std::int64_t offset = 0;        ///< bytes from the start of the allocation
  std::int64_t process = 0;       ///< of the owner
};

/// A device of this process. Plans of different threads may use it at the same time. Whatever cannot be done is an
/// Error that says what the device said.
class DR_API Device {
 public:
  explicit Device(bool known_to_mpi) : known_to_mpi_(known_to_mpi) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

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

  /// \throws Error with what was needed and what there is.
  virtual void* allocate(std::int64_t nbytes) = 0;
  virtual void free(void* memory) noexcept = 0;

  /// Makes main memory of this process fit for copies beside other work (page-locked).
  virtual void pin(void* memory, std::int64_t nbytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  /// The number of the device in whose memory an address lies; -1: in main memory.
  virtual int device_of(const void* address) const = 0;

  virtual Stream create_stream() = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;
  virtual Event create_event() = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  /// Marks what has been enqueued so far.
  virtual void record(Event event, Stream stream) = 0;
  /// What is enqueued from now on runs after the event.
  virtual void wait(Stream stream, Event event) = 0;
  /// Whether an event has completed; one that was never recorded has.
  virtual bool completed(Event event) = 0;
  /// Waits for all that was enqueued.
  virtual void synchronize(Stream stream) = 0;

  /// Enqueues a copy of bytes between any two of main memory, which must be pinned, and memory of devices.
  virtual void copy(void* target, const void* source, std::int64_t nbytes, Stream stream) = 0;

  /// Prepares copies. \throws Error also if the device cannot do what the step does with elements.
  virtual std::unique_ptr<CopyKernel> copy_kernel(const std::vector<DeviceCopy>& copies, const ElementStep& step) = 0;

  /// Names memory for other processes; false if this memory cannot be mapped by them.
  virtual bool name_memory(const void* memory, DeviceMemoryName& name) = 0;
  /// Whether memory of the device of that unique id can be mapped, and reached by kernels of this one.
  virtual bool reaches(const std::array<char, 16>& unique_id) = 0;
  /// Maps another process's allocation. \return the address of its start.
  virtual char* map(const DeviceMemoryName& name) = 0;
  virtual void unmap(char* start) noexcept = 0;

 private:
  const bool known_to_mpi_;
};

/// The device that the calling thread uses now. \throws Error if this machine has none, or the library for it is not
/// there; says what is missing.
DR_API Device& current_device();

}  // namespace dace_redist
