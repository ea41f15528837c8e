// SPDX-License-Identifier: BSD-3-Clause
#include "device/plan_device.hpp"

#include "device/element_support.hpp"

namespace dace_redist {

void PlanDevice::take(const Description& description, const ElementSteps& steps) {
  if (description.source_memory == Memory::device) check_device_step(steps.pack());
  if (description.target_memory == Memory::device) check_device_step(steps.unpack());
  device_ = &current_device();
  const CurrentDevice current(*device_);
  started_ = make_event(*device_);
  followed_ = make_event(*device_);
}

void PlanDevice::begin(const Description& description, const RankSchedule& schedule, const char* source,
                       const char* target, Stream caller) {
  failure_.clear();
  caller_ = caller;
  attempt([&] {
    if (schedule.reads_source()) check_memory("source", source, description.source_memory);
    if (schedule.writes_target()) check_memory("target", target, description.target_memory);
    device_->record(started_.get(), caller);
  });
}

void PlanDevice::follow(Stream stream) {
  device_->record(followed_.get(), stream);
  device_->wait(caller_, followed_.get());
}

void PlanDevice::fail_with(int peer) {
  attempt([peer] { throw Error(text("the exchange failed on rank ", peer, ", whose error says why")); });
}

void PlanDevice::check_memory(const char* side, const char* array, Memory expected) const {
  const int number = device_->device_of(array);
  const std::string place = number < 0 ? "in main memory" : text("on device ", number);
  if (number != (expected == Memory::host ? -1 : device_->number()))
    throw Error(text("the ", side, " array lies ", place, "; the plan was made for ",
                     expected == Memory::host ? "main memory" : device_->name()));
}

}  // namespace dace_redist
