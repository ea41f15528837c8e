// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans that move arrays of a device by way of a copy in main memory.

#include <memory>

#include "device/device_objects.hpp"
#include "device/plan_device.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// Strategies that know main memory only: arrays on the device are copied as a whole to main memory, moved by the
/// strategy there, and copied back.
class WholeArrayPlan final : public Plan {
 private:
  Device& device() const { return device_.get(); }
  void prepare() override {
    if (!plan_) return;
    const CurrentDevice current(device());
    plan_->set_local_arrays(description().source_local, description().target_local);
    take_memory();
  }

  void connect() override {
    all_or_none(comm(), [&] { device_.take(); });
    Description in_main_memory = description();
    in_main_memory.source_memory = in_main_memory.target_memory = Memory::host;
    plan_ = find_strategy(description().strategy)(in_main_memory, comm());
    all_or_none(comm(), [&] {
      const CurrentDevice current(device());
      take_memory();
    });
  }

  /// Bytes from the first to the last element of a local array.
  static Index span_of(const Encoding& local, Index element_bytes) {
    const std::size_t ndim = local.size() / 2;
    Index last = 0;
    for (std::size_t d = 0; d < ndim; ++d) {
      if (local[d] == 0) return 0;
      last += (local[d] - 1) * local[ndim + d];
    }
    return (last + 1) * element_bytes;
  }

  void take_memory() {
    const Index target_bytes = steps().unpack().target_bytes;
    source_.nbytes = span_of(description().source_local, element_bytes());
    target_.nbytes = span_of(description().target_local, target_bytes);
    source_.staged = description().source_memory == Memory::device && schedule().reads_source();
    target_.staged = description().target_memory == Memory::device && schedule().writes_target();
    for (StagedArray* array : {&source_, &target_})
      if (array->staged) array->memory = PinnedBuffer(device(), array->nbytes);
  }

  void begin(const char* source, char* target) override {
    const CurrentDevice current(device());
    device_.started(description(), schedule(), source, target, stream());
    device_target_ = target;
    if (source_.staged) device().copy(source_.memory.at(0), source, source_.nbytes, stream());
    if (target_.staged)
      device().copy(target_.memory.at(0), target, target_.nbytes, stream());  // what does not move stays
    device().synchronize(stream());
    plan_->start(source_.staged ? source_.memory.at(0) : source, target_.staged ? target_.memory.at(0) : target);
  }

  bool advance() override {
    if (!plan_->progress()) return false;
    const CurrentDevice current(device());
    if (target_.staged) device().copy(device_target_, target_.memory.at(0), target_.nbytes, stream());
    device().synchronize(stream());
    return true;
  }

  void exchange(const char* source, char* target) override { exchange_in_parts(source, target); }

  struct StagedArray {
    bool staged = false;
    Index nbytes = 0;
    PinnedBuffer memory;
  };

  PlanDevice device_;
  std::unique_ptr<Plan> plan_;
  StagedArray source_, target_;
  char* device_target_ = nullptr;  // of the exchange at hand
};

}  // namespace dace_redist
