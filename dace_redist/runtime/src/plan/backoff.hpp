// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Waiting for other ranks.

#include <cstdint>

namespace dace_redist {

/// Spins, then yields the core, then sleeps, so that oversubscribed ranks can run. Where many ranks share a core, they
/// sleep after one turn if a bell can wake them: ranks that look and yield take most turns from those that work.
class Backoff {
 public:
  static constexpr long nap_nanoseconds = 500000;  ///< of a sleep that a bell ends

  /// \param ranks  that share this node.
  explicit Backoff(std::int64_t ranks);

  /// \return whether this is one of the rounds, about every 64th, in which a waiting rank should look around.
  bool wait();
  /// Takes note of a sleep that no bell has ended. \return as wait().
  bool slept();
  void reset() { rounds_ = 0; }
  /// Whether the rank should sleep if a bell can wake it.
  bool sleeps() const { return crowded_ && rounds_ > 0; }
  /// Whether nothing has happened for so long that a partner may be blocked elsewhere.
  bool long_wait() const { return rounds_ >= yielding_from + 64; }

 private:
  static constexpr int yielding_from = 32, sleeping_from = 20000;

  bool crowded_;
  int busy_rounds_, rounds_ = 0;
};

}  // namespace dace_redist
