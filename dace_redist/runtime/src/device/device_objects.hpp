// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The calling thread's device, and memory for messages.

#include "copy/buffer.hpp"
#include "device/device.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// Makes a device the calling thread's as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device& device) : device_(device), before_(device.make_current()) {}
  ~CurrentDevice() { device_.restore(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  Device& device_;
  int before_;
};

/// Bytes in a device's memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device& device, Index nbytes) {
    if (nbytes > 0) memory_ = device.allocate(nbytes);
  }
  char* at(Index offset) const { return static_cast<char*>(memory_.get()) + offset; }

 private:
  DeviceHandle memory_;
};

/// Bytes in main memory, pinned.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(Device& device, Index nbytes) : buffer_(nbytes), pinned_(device.pin(buffer_.at(0), nbytes)) {}
  char* at(Index offset) const { return buffer_.at(offset); }

 private:
  Buffer buffer_;
  DeviceHandle pinned_;  // released before its memory
};

}  // namespace dace_redist
