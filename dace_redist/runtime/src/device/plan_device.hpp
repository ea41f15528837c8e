// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The device of a plan, its order with the caller's stream, and failures of an exchange.

#include <string>

#include "device/device_objects.hpp"
#include "plan/description.hpp"

namespace dace_redist {

/// The state that the transports of a plan share in an exchange.
///
/// An error on this rank does not end the exchange, as other ranks wait for its messages: transports carry out their
/// work by attempt(), and after a failure send empty messages, which are failures of their receivers. The plan throws
/// the error when all transports are done.
class PlanDevice {
 public:
  /// Takes the device that is current in the calling thread.
  /// \throws Error if there is none, or if it cannot compute with elements as the steps need it.
  void take(const Description& description, const ElementSteps& steps);

  Device& get() const { return *device_; }

  /// Begins an exchange: marks the work that the caller has enqueued. Arrays without elements are not looked at; it is
  /// a failure if another one does not lie where the description says. \param caller  stream in whose order the arrays
  /// are used.
  void begin(const Description& description, const RankSchedule& schedule, const char* source, const char* target,
             Stream caller);
  /// The mark of begin(): the arrays may be used after it.
  Event started() const { return started_.get(); }
  /// Takes the stream in whose order the results are used, which may be another one than that of begin().
  void set_caller(Stream caller) { caller_ = caller; }
  /// Has work that the caller enqueues from now on run after the work of a stream.
  void follow(Stream stream);

  /// Does `work`, unless the exchange has failed; if it throws an Error, the exchange has failed.
  /// \return whether it was done.
  template <class Work>
  bool attempt(const Work& work) {
    if (failed()) return false;
    try {
      work();
    } catch (const Error& error) {
      failure_ = error.what();
    }
    return !failed();
  }
  /// Notes that another rank's part of the exchange failed.
  void fail_with(int peer);
  bool failed() const { return !failure_.empty(); }
  /// \throws Error if the exchange has failed.
  void check() const {
    if (failed()) throw Error(failure_);
  }

 private:
  void check_memory(const char* side, const char* array, Memory expected) const;

  Device* device_ = nullptr;
  Stream caller_ = nullptr;
  OwnedEvent started_, followed_;
  std::string failure_;  // of the exchange at hand
};

}  // namespace dace_redist
