// SPDX-License-Identifier: BSD-3-Clause
#include "api/owned_plan.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "dace_redist.h"
#include "device/device_objects.hpp"

namespace dace_redist {
namespace {

/// The level of thread support of MPI.
int thread_level() {
  static const int level = [] {
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
    return provided;
  }();
  return level;
}

}  // namespace

OwnedPlan::OwnedPlan(MPI_Comm comm, const std::function<Problem()>& describe) : plan_(Plan::make(comm, describe)) {}

OwnedPlan::~OwnedPlan() {
  if (thread_.joinable()) {
    thread_.join();
    started_ = failure_ != nullptr;
  }
  if (failed_ || started_) (void)plan_.release();
}

void OwnedPlan::check_idle() const {
  if (started_) throw ArgumentError("a transfer of the plan is under way: wait for it first");
}

void OwnedPlan::set_stream(Stream stream) {
  stream_ = stream;
  plan_->set_stream(stream);
}

void OwnedPlan::check_ready(const void* const* sources, void* const* targets) {
  const std::string& label = plan_->problem().label;
  if (failed_) throw Error(text("\"", label, "\" failed before; free it and make another plan"));
  if (started_) throw Error(text("a transfer of \"", label, "\" is under way: wait for it first"));
  const std::string missing = plan_->missing_array(sources, targets);
  if (missing.empty()) return;
  const std::string message = text(missing, " is null, but elements of this rank's array are to be moved");
  fail(message);
  throw ArgumentError(message);
}

/// Runs `work` of a transfer.
void OwnedPlan::attempt(const std::function<void()>& work) {
  failure_ = caught(work);
  if (!failure_) return;
  failed_ = true;
  std::rethrow_exception(failure_);
}

void OwnedPlan::run(const void* const* sources, void* const* targets) {
  static std::mutex one_at_a_time;
  check_ready(sources, targets);
  std::unique_lock<std::mutex> locked(one_at_a_time, std::defer_lock);
  if (thread_level() == MPI_THREAD_SERIALIZED) locked.lock();
  attempt([&] { plan_->run(sources, targets); });
}

void OwnedPlan::start(const void* const* sources, void* const* targets, int progress) {
  check_ready(sources, targets);
  if (progress != DR_PROGRESS_CALLS && progress != DR_PROGRESS_THREAD)
    throw ArgumentError(text("progress must be DR_PROGRESS_CALLS or DR_PROGRESS_THREAD, got ", progress));
  if (progress == DR_PROGRESS_THREAD && thread_level() < MPI_THREAD_MULTIPLE)
    throw ArgumentError(
        "progress by a thread needs MPI_Init_thread with MPI_THREAD_MULTIPLE; use DR_PROGRESS_CALLS, in Python "
        "progress=\"calls\"");
  attempt([&] {
    if (progress == DR_PROGRESS_CALLS)
      plan_->start(sources, targets);
    else
      start_thread(sources, targets);
  });
  started_ = true;
  done_ = false;
}

void OwnedPlan::start_thread(const void* const* sources, void* const* targets) {
  const std::vector<TensorProblem>& tensors = plan_->problem().tensors;
  Device* const device = tensors.front().on_device() ? &current_device() : nullptr;
  thread_ended_ = false;
  thread_ = std::thread([this, device, read = std::vector<const void*>(sources, sources + tensors.size()),
                         written = std::vector<void*>(targets, targets + tensors.size())]() noexcept {
    failure_ = caught([&] {
      plan_->run(read.data(), written.data());
      if (!device) return;
      const CurrentDevice current(*device);
      device->synchronize(stream_);  // every other stream finds the result
    });
    thread_ended_.store(true, std::memory_order_release);
  });
}

bool OwnedPlan::test() {
  if (thread_.joinable()) return thread_ended_.load(std::memory_order_acquire);
  if (failure_) std::rethrow_exception(failure_);
  if (!done_) attempt([&] { done_ = plan_->test(); });
  return done_;
}

void OwnedPlan::wait(std::optional<Stream> stream) {
  if (!std::exchange(started_, false)) throw Error("no transfer is under way: it was waited for, or not started");
  const bool by_thread = thread_.joinable();
  if (by_thread)
    thread_.join();
  else if (stream)
    set_stream(*stream);
  if (!failure_ && !done_ && !by_thread) failure_ = caught([&] { plan_->wait(); });
  if (!failure_) return;
  failed_ = true;
  std::rethrow_exception(failure_);
}

void OwnedPlan::fail(const std::string& message) noexcept {
  failed_ = true;
  plan_->fail(message);
}

}  // namespace dace_redist
