// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How a sender writes pieces into staging slots: past the caches or through them, whichever takes less time.

#include <array>
#include <chrono>
#include <cstdint>

namespace dace_redist {

/// What copying pieces takes, per byte: of the fastest piece, as ranks lose their core in the middle of others.
class PieceTime {
 public:
  /// Takes note of the seconds per byte of a piece.
  void add(double seconds) {
    if (min_ == 0 || seconds < min_) min_ = seconds;
  }

  /// \return the time since the last call, in seconds per byte; 0 if there was no piece.
  double take() {
    const double lowest = min_;
    min_ = 0;
    return lowest;
  }

 private:
  double min_ = 0;
};

/// \return the seconds per byte that `copy` takes, which returns the bytes it has copied.
template <class Copy>
double seconds_per_byte(const Copy& copy) {
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t nbytes = copy();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / static_cast<double>(nbytes);
}

/// Whether a sender packs for one receiver with non-temporal stores, which leave a piece in memory, or with ordinary
/// ones, which leave it in this core's cache.
///
/// A core that shares a cache with this one takes the piece from there sooner than from memory; any other core up to
/// four times later. Nothing says reliably which of these the receiver runs on, and it may change: so both stores are
/// timed, packing and unpacking together, and the faster ones taken from then on.
class StoreChoice {
 public:
  /// Whether the next exchange takes non-temporal stores.
  bool streams() const { return streams_; }

  /// Takes note of what the last exchange took, and chooses for the next one.
  /// \param seconds  of packing and unpacking a byte.
  void learn(double seconds) {
    double& known = seconds_[streams_];
    const bool slower = known > 0 && seconds > slower_by * known;
    known = seconds;
    ++since_trial_;
    if (seconds_[!streams_] == 0 || since_trial_ >= trial_interval || (slower && since_trial_ >= min_interval)) {
      streams_ = !streams_;
      since_trial_ = 0;
    } else {
      streams_ = seconds_[true] < seconds_[false];
    }
  }

 private:
  static constexpr double slower_by = 1.5;  // than in the last exchange with the same stores: something has changed
  static constexpr int trial_interval = 128, min_interval = 8;  // exchanges until the other stores are tried again

  bool streams_ = true;
  int since_trial_ = 0;
  std::array<double, 2> seconds_{};  // [streams] of the last exchange with these stores; 0: none yet
};

}  // namespace dace_redist
