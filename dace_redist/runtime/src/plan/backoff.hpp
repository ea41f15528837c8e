// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Waiting for other ranks.

#include <cstdint>

namespace dace_redist {

/// Spins, then yields the core, then sleeps, so that oversubscribed ranks can run.
class Backoff {
 public:
  /// \param ranks  that share this node: with more of them than cores, another rank needs this core.
  explicit Backoff(std::int64_t ranks);

  /// \return whether this is one of the rounds, about every 64th, in which a waiting rank should look around.
  bool wait();
  void reset() { rounds_ = 0; }
  /// Whether nothing has happened for so long that a partner may be blocked elsewhere.
  bool long_wait() const { return rounds_ >= yielding_from + 64; }

 private:
  static constexpr int yielding_from = 32, sleeping_from = 20000;

  int busy_rounds_, rounds_ = 0;
};

}  // namespace dace_redist
