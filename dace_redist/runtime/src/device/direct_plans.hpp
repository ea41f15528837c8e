// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategies Datatype and RMA with an MPI that takes addresses in a device's memory.
/// Start reading at: OwnCopies.

#include <algorithm>
#include <memory>
#include <vector>

#include "device/packed_messages.hpp"
#include "device/plan_device.hpp"
#include "exchange/datatype.hpp"
#include "exchange/put_window.hpp"

namespace dace_redist {

/// A stream of a plan, in which the device copies what stays on the rank.
class OwnCopies {
 public:
  void prepare(Device& device, const RankSchedule& schedule, const ElementSteps& steps) {
    if (!stream_.get()) {
      stream_ = make_stream(device);
      mark_ = make_event(device);
    }
    device_ = &device;
    kernel_.reset();
    std::vector<DeviceCopy> copies;
    for (const StridedBlock& block : schedule.self.blocks) copies.push_back({block, 0, 0});
    if (!copies.empty()) kernel_ = device.copy_kernel(copies, steps.direct());
  }

  Stream stream() const { return stream_.get(); }

  /// Enqueues the copies. \param started  what neither array may be used before.
  void begin(const char* source, char* target, Event started) {
    device_->wait(stream_.get(), started);
    if (kernel_) kernel_->launch({source}, {target}, stream_.get());
  }

  /// Marks what the stream has got so far.
  Event mark() {
    device_->record(mark_.get(), stream_.get());
    return mark_.get();
  }

  /// What `caller` gets from now on runs after all that the stream has got.
  void finish(Stream caller) { device_->wait(caller, mark()); }

 private:
  Device* device_ = nullptr;
  OwnedStream stream_;
  OwnedEvent mark_;
  std::unique_ptr<CopyKernel> kernel_;
};

/// Strategy Datatype between arrays on devices, where nothing is computed: MPI gathers and scatters the elements there.
class DeviceDatatypePlan final : public DatatypePlan {
 private:
  void prepare() override {
    DatatypePlan::prepare();
    if (connected_) prepare_copies();
  }

  void connect() override {
    all_or_none(comm(), [&] {
      device_.take();
      prepare_copies();
    });
    connected_ = true;
  }

  void prepare_copies() {
    const CurrentDevice current(device_.get());
    copies_.prepare(device_.get(), schedule(), steps());
  }

  void exchange(const char* source, char* target) override { exchange_in_parts(source, target); }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device_.get());
    source_ = source;
    target_ = target;
    started_ = device_.started(description(), schedule(), source, target, stream());
    copies_.begin(source, target, started_);
    posted_ = false;
  }

  bool advance() override {
    const CurrentDevice current(device_.get());
    if (!posted_) {
      if (!device_.get().completed(started_)) return false;  // MPI knows no streams
      post_messages(source_, target_);
      posted_ = true;
    }
    if (!DatatypePlan::advance()) return false;
    copies_.finish(stream());
    return true;
  }

  PlanDevice device_;
  OwnCopies copies_;
  bool connected_ = false;
  const char* source_ = nullptr;  // of the exchange at hand
  char* target_ = nullptr;
  Event started_ = nullptr;
  bool posted_ = false;  // whether its messages are under way
};

/// Strategy RMA between arrays on devices: packed messages are put into a window in the receiver's device.
class DeviceRMAPlan final : public Plan {
 private:
  void prepare() override {
    if (!connected_) return;
    const CurrentDevice current(device_.get());
    prepare_kernels();
  }

  void prepare_kernels() {
    Device& device = device_.get();
    copies_.prepare(device, schedule(), steps());
    sends_ = PackedMessages(device, Direction::pack, sends_in_order(), steps(), true);
    receives_ = PackedMessages(device, Direction::unpack, receives_in_order(), steps(), false);
    if (send_bytes_ < sends_.buffer_bytes()) {  // strides decide which messages are packed
      send_bytes_ = sends_.buffer_bytes();
      send_buffer_ = DeviceBuffer(device, send_bytes_);
    }
  }

  void connect() override {
    all_or_none(comm(), [&] {
      device_.take();
      const CurrentDevice current(device_.get());
      prepare_kernels();
      window_memory_ = DeviceBuffer(device_.get(), std::max<Index>(1, receives_.buffer_bytes()));
    });
    connected_ = true;
    const auto described = [](const PackedMessages& messages) {
      std::vector<PutWindow::Message> list;
      for (const PackedMessages::Part& part : messages.parts()) list.push_back({part.peer, part.nbytes, part.offset});
      return list;
    };
    window_.connect(comm(), tag, described(sends_), described(receives_), window_memory_.at(0),
                    receives_.buffer_bytes());
  }

  void exchange(const char* source, char* target) override { exchange_in_parts(source, target); }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device_.get());
    source_ = source;
    target_ = target;
    const Event started = device_.started(description(), schedule(), source, target, stream());
    device_.get().wait(copies_.stream(), started);
    sends_.launch(source, send_buffer_.at(0), copies_.stream());
    packed_ = copies_.mark();
    opened_ = false;
  }

  bool advance() override {
    const CurrentDevice current(device_.get());
    if (!opened_) {
      if (!device_.get().completed(packed_)) return false;  // what was in the window before is unpacked then, too
      put();
      copies_.begin(source_, target_, packed_);
      opened_ = true;
    }
    if (!window_.arrived()) return false;
    receives_.launch(window_.memory(), target_, copies_.stream());
    copies_.finish(stream());
    return true;
  }

  void put() {
    window_.open();
    for (std::size_t s = 0; s < sends_.parts().size(); ++s) {
      const PackedMessages::Part& part = sends_.parts()[s];
      const char* const bytes = (part.in_array ? source_ : send_buffer_.at(0)) + part.offset;
      window_.put(s, bytes, options().max_message_bytes);
    }
  }

  PlanDevice device_;
  OwnCopies copies_;
  bool connected_ = false;
  PackedMessages sends_, receives_;
  Index send_bytes_ = 0;
  DeviceBuffer send_buffer_;
  DeviceBuffer window_memory_;  // freed after the window
  PutWindow window_;
  const char* source_ = nullptr;  // of the exchange at hand
  char* target_ = nullptr;
  Event packed_ = nullptr;
  bool opened_ = false;  // whether its puts are under way
};

}  // namespace dace_redist
