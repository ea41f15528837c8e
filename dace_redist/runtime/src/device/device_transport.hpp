// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The transports of a tensor whose source, target, or both lie in a device's memory: strategy Hierarchical.

#include <memory>
#include <vector>

#include "device/device_objects.hpp"
#include "plan/problem.hpp"
#include "transport/chunk.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// What the transports of an exchange share: the device, and the order of a transfer with the caller's stream.
class PlanDevice {
 public:
  /// Takes the device that is current in the calling thread.
  /// \param caller  the caller's stream, which may become another one at any time.
  /// \throws Error if there is no device, or if it cannot compute with elements as the steps need it.
  PlanDevice(const TensorProblem& problem, const Tensor& tensor, const Messages& messages, const Stream& caller)
      : source_memory_(problem.source_memory),
        target_memory_(problem.target_memory),
        reads_(!messages.sends.empty() || messages.self.nbytes > 0),
        writes_(!messages.receives.empty() || messages.self.nbytes > 0),
        caller_(caller) {
    if (source_memory_ == Memory::device) check_device_step(tensor.steps.pack());
    if (target_memory_ == Memory::device) check_device_step(tensor.steps.unpack());
    device_ = &current_device();
    const CurrentDevice current(*device_);
    started_ = device_->make_event();
    followed_ = device_->make_event();
  }

  Device& get() const { return *device_; }

  /// Begins a transfer: marks the work that the caller has enqueued. Arrays without elements are not looked at.
  /// \throws Error if another array does not lie where the problem says.
  void begin(const Arrays& arrays) {
    if (reads_) check_memory("source", arrays.sources[0], source_memory_);
    if (writes_) check_memory("target", arrays.targets[0], target_memory_);
    device_->record(started_.get(), caller_);
  }
  /// The mark of begin(): the arrays may be used after it.
  Event started() const { return started_.get(); }
  /// Has work that the caller enqueues from now on run after the work of a stream.
  void follow(Stream stream) {
    device_->record(followed_.get(), stream);
    device_->wait(caller_, followed_.get());
  }

 private:
  void check_memory(const char* side, const char* array, Memory expected) const {
    const int number = device_->device_of(array);
    const std::string place = number < 0 ? "in main memory" : text("on device ", number);
    if (number != (expected == Memory::host ? -1 : device_->number()))
      throw Error(text("the ", side, " array lies ", place, "; the plan was made for ",
                       expected == Memory::host ? "main memory" : device_->name()));
  }

  Memory source_memory_, target_memory_;
  bool reads_, writes_;
  const Stream& caller_;
  Device* device_;
  DeviceHandle started_, followed_;
};

/// Other ranks of this node with which messages are exchanged.
std::vector<int> node_peers(const std::vector<PeerMessage>& messages, const Link& link);

/// Messages in chunks through two rings of slots in pinned main memory: kernels, copies to main memory, transfers,
/// copies to the device and kernels of different chunks overlap. Between ranks of a node, the receiver copies a chunk
/// to its device from the sender's slot, which both have pinned; MPI carries the slot's place there, and a flag beside
/// the slots gives the slot back.
///
/// Partial results are unpacked in the order of the chunks, which is that of the reduction, and the self copy, if there
/// is one, between those of the summands before and after it.
///
/// \param messages  with a self copy of partial results only, which both lie on the device.
/// \param node_memory  whether messages may move through node-shared memory.
std::unique_ptr<Transport> make_staged(PlanDevice& device, const Link& link, const TensorProblem& problem,
                                       const Cutting& cutting, const Messages& messages, bool node_memory);

/// Messages between devices of one node that reach each other, and the self copy. Each rank tells those that send to it
/// where its array is. A sender that has heard from all its receivers moves all messages by one kernel, its self copy
/// included, and tells them when that is done. An array that other processes cannot map is received in a buffer, and
/// unpacked there. So are partial results, in the order of the reduction. Takes the tags `tag` and `tag + 1`.
std::unique_ptr<Transport> make_peer(PlanDevice& device, const Link& link, int tag, Messages messages);

}  // namespace dace_redist
