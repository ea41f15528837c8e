// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The device of a plan.

#include "device/device_objects.hpp"
#include "plan/description.hpp"

namespace dace_redist {

/// Which device a plan's arrays lie on, whether they do, and the order with the caller's stream.
class PlanDevice {
 public:
  /// Takes the device that is current in the calling thread. \throws Error if there is none.
  void take() {
    device_ = &current_device();
    const CurrentDevice current(*device_);
    started_ = make_event(*device_);
  }

  Device& get() const { return *device_; }

  /// Marks what the caller enqueued before an exchange, of which an array without elements is not looked at.
  /// \return an event, to be recorded again by the next exchange.
  /// \throws Error if an array does not lie where the plan was told.
  Event started(const Description& description, const RankSchedule& schedule, const char* source, const char* target,
                Stream stream) {
    if (schedule.reads_source()) check_memory("source", source, description.source_memory);
    if (schedule.writes_target()) check_memory("target", target, description.target_memory);
    device_->record(started_.get(), stream);
    return started_.get();
  }

 private:
  void check_memory(const char* side, const char* array, Memory expected) const {
    const int number = device_->device_of(array);
    if (expected == Memory::host && number >= 0)
      throw Error(text("the ", side, " array lies on device ", number, "; the plan was made for main memory"));
    if (expected == Memory::device && number < 0)
      throw Error(text("the ", side, " array lies in main memory; the plan was made for ", device_->name()));
    if (expected == Memory::device && number != device_->number())
      throw Error(text("the ", side, " array lies on device ", number, "; the plan was made for ", device_->name()));
  }

  Device* device_ = nullptr;
  OwnedEvent started_;
};

}  // namespace dace_redist
