// SPDX-License-Identifier: BSD-3-Clause
#include "device/plan_device.hpp"

namespace dace_redist {

PlanDevice::PlanDevice(const TensorProblem& problem, const Tensor& tensor, const Messages& messages,
                       const Stream& caller)
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

void PlanDevice::begin(const Arrays& arrays) {
  if (reads_) check_memory("source", arrays.sources[0], source_memory_);
  if (writes_) check_memory("target", arrays.targets[0], target_memory_);
  device_->record(started_.get(), caller_);
}

void PlanDevice::follow(Stream stream) {
  device_->record(followed_.get(), stream);
  device_->wait(caller_, followed_.get());
}

void PlanDevice::check_memory(const char* side, const char* array, Memory expected) const {
  const int number = device_->device_of(array);
  const std::string place = number < 0 ? "in main memory" : text("on device ", number);
  if (number != (expected == Memory::host ? -1 : device_->number()))
    throw Error(text("the ", side, " array lies ", place, "; the plan was made for ",
                     expected == Memory::host ? "main memory" : device_->name()));
}

}  // namespace dace_redist
