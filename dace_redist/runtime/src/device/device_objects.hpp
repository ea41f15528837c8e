// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory, streams and events of a device that free themselves.

#include <utility>

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

/// Something of a device that `Release` gives back. Movable, not copyable.
template <class Handle, void (Device::*Release)(Handle) noexcept>
class DeviceOwned {
 public:
  DeviceOwned() = default;
  DeviceOwned(Device& device, Handle handle) : device_(&device), handle_(handle) {}
  DeviceOwned(DeviceOwned&& other) noexcept { swap(other); }
  DeviceOwned& operator=(DeviceOwned&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceOwned(const DeviceOwned&) = delete;
  DeviceOwned& operator=(const DeviceOwned&) = delete;
  ~DeviceOwned() {
    if (handle_) (device_->*Release)(handle_);
  }
  Handle get() const { return handle_; }

 private:
  void swap(DeviceOwned& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
  }

  Device* device_ = nullptr;
  Handle handle_{};
};

using OwnedStream = DeviceOwned<Stream, &Device::destroy_stream>;
using OwnedEvent = DeviceOwned<Event, &Device::destroy_event>;
using MappedMemory = DeviceOwned<char*, &Device::unmap>;
/// Main memory that is pinned as long as this lives, but belongs to somebody else.
using Pinned = DeviceOwned<void*, &Device::unpin>;

inline OwnedStream make_stream(Device& device) { return {device, device.create_stream()}; }
inline OwnedEvent make_event(Device& device) { return {device, device.create_event()}; }
inline Pinned pin(Device& device, void* memory, Index nbytes) {
  if (nbytes == 0) return {};
  device.pin(memory, nbytes);
  return {device, memory};
}

/// Bytes in a device's memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device& device, Index nbytes) {
    if (nbytes > 0) memory_ = {device, device.allocate(nbytes)};
  }
  char* at(Index offset) const { return static_cast<char*>(memory_.get()) + offset; }

 private:
  DeviceOwned<void*, &Device::free> memory_;
};

/// Bytes in main memory, pinned.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(Device& device, Index nbytes) : buffer_(nbytes), pinned_(pin(device, buffer_.at(0), nbytes)) {}
  char* at(Index offset) const { return buffer_.at(offset); }

 private:
  Buffer buffer_;
  Pinned pinned_;  // released before its memory
};

}  // namespace dace_redist
