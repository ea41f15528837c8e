// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The clock by which transfers are timed.

#include <chrono>

namespace dace_redist {

/// From when to when a rank is in a transfer, in seconds of the clock that all processes of a node share.
struct Stay {
  double begun = 0, ended = 0;

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  double seconds() const { return ended - begun; }
};

}  // namespace dace_redist
