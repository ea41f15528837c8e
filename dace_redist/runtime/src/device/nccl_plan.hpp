// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy NCCL: packed messages between devices, by NVIDIA's collective communication library.

#include "device/direct_plans.hpp"
#include "device/nccl.hpp"

namespace dace_redist {

/// Everything is enqueued in one stream: pack, send and receive, unpack. Nothing waits in main memory, and a message
/// that is contiguous in an array goes from there, or arrives there.
class NcclPlan final : public Plan {
 private:
  void prepare() override {
    if (!nccl_) return;
    const CurrentDevice current(device_.get());
    prepare_kernels();
  }

  void prepare_kernels() {
    Device& device = device_.get();
    copies_.prepare(device, schedule(), steps());
    sends_ = PackedMessages(device, Direction::pack, schedule().sends, steps(), true);
    receives_ = PackedMessages(device, Direction::unpack, schedule().receives, steps(), true);
    send_buffer_ = DeviceBuffer(device, sends_.buffer_bytes());
    receive_buffer_ = DeviceBuffer(device, receives_.buffer_bytes());
  }

  void connect() override {
    if (!description().all_on_device())
      throw Error(
          "strategy NCCL moves between arrays on GPUs, and one of these lies in main memory; take Hierarchical");
    all_or_none(comm(), [&] {
      device_.take();
      const CurrentDevice current(device_.get());
      prepare_kernels();
    });
    const CurrentDevice current(device_.get());
    nccl_ = nccl_communicator(comm(), device_.get());
  }

  void exchange(const char* source, char* target) override { begin(source, target); }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device_.get());
    const Event started = device_.started(description(), schedule(), source, target, stream());
    copies_.begin(source, target, started);
    sends_.launch(source, send_buffer_.at(0), copies_.stream());
    NcclGroup group;
    for (const PackedMessages::Part& part : sends_.parts())
      nccl_->send((part.in_array ? source : send_buffer_.at(0)) + part.offset, part.nbytes, part.peer,
                  copies_.stream());
    for (const PackedMessages::Part& part : receives_.parts())
      nccl_->receive((part.in_array ? target : receive_buffer_.at(0)) + part.offset, part.nbytes, part.peer,
                     copies_.stream());
    group.end();
    receives_.launch(receive_buffer_.at(0), target, copies_.stream());
    copies_.finish(stream());
  }

  bool advance() override { return true; }

  PlanDevice device_;
  OwnCopies copies_;
  std::shared_ptr<NcclCommunicator> nccl_;
  PackedMessages sends_, receives_;
  DeviceBuffer send_buffer_, receive_buffer_;
};

/// Makes a plan of strategy NCCL. Collective, see Plan::make().
inline std::unique_ptr<Plan> make_nccl_plan(const Description& description, MPI_Comm comm) {
  share_nccl(comm);
  return Plan::make<NcclPlan>(description, comm);
}

}  // namespace dace_redist
