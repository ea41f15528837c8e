// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The device of a plan, and the order of a transfer with the caller's stream.

#include "device/device_objects.hpp"
#include "plan/problem.hpp"
#include "transport/message.hpp"

namespace dace_redist {

/// What the transports of an exchange share.
class PlanDevice {
 public:
  /// Takes the device that is current in the calling thread.
  /// \param caller  the caller's stream, which may become another one at any time.
  /// \throws Error if there is no device, or if it cannot compute with elements as the steps need it.
  PlanDevice(const TensorProblem& problem, const Tensor& tensor, const Messages& messages, const Stream& caller);

  Device& get() const { return *device_; }

  /// Begins a transfer: marks the work that the caller has enqueued. Arrays without elements are not looked at.
  /// \throws Error if another array does not lie where the problem says.
  void begin(const Arrays& arrays);
  /// The mark of begin(): the arrays may be used after it.
  Event started() const { return started_.get(); }
  /// Has work that the caller enqueues from now on run after the work of a stream.
  void follow(Stream stream);

 private:
  void check_memory(const char* side, const char* array, Memory expected) const;

  Memory source_memory_, target_memory_;
  bool reads_, writes_;
  const Stream& caller_;
  Device* device_;
  DeviceHandle started_, followed_;
};

}  // namespace dace_redist
