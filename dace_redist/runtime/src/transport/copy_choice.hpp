// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How a message between private arrays of two ranks of a node is copied: by whichever way takes less time.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dace_redist {

/// What copying pieces takes, per byte: of the fastest piece, as ranks lose their core in the middle of others.
class PieceTime {
 public:
  /// Takes note of the seconds per byte of a piece.
  void add(double seconds) {
    if (min_ == 0 || seconds < min_) min_ = seconds;
  }

  /// \return the time since the last call, in seconds per byte; 0 if there was no piece.
  double take() { return std::exchange(min_, 0); }

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

/// Copied by the receiver out of the sender's memory, by the kernel; or staged in slots, which the sender writes with
/// non-temporal stores, so that they lie in memory, or with ordinary ones, so that they lie in its core's cache.
enum class CopyWay { read, streamed, cached };

/// The way of a message in each transfer.
///
/// A core that shares a cache with the sender's takes a piece from there sooner than from memory; any other core up to
/// four times later. What the kernel takes to read differs by a factor of three between machines. Nothing says reliably
/// which of these holds, and it may change: so every way is timed in the first transfers, on both sides together, and
/// the fastest one taken from then on. Now and then another one is tried again.
class CopyChoice {
 public:
  CopyChoice() = default;
  /// \param way  until others were timed.
  CopyChoice(CopyWay way, bool may_read) : first_(may_read ? CopyWay::read : CopyWay::streamed), way_(way) {}

  /// From now on the message is staged.
  void forbid_reading() {
    if (first_ != CopyWay::read) return;
    first_ = CopyWay::streamed;
    if (way_ == CopyWay::read) way_ = fastest();
  }

  CopyWay way() const { return way_; }

  /// Takes note of what the last transfer took, and chooses for the next one.
  /// \param seconds  of both sides, per byte.
  void learn(double seconds) {
    Times& times = times_[index(way_)];
    const bool slower = times.is_known() && seconds > slower_by * times.seconds;
    times.add(seconds);
    ++since_trial_;
    way_ = fastest();
    if (!times_[index(way_)].is_known() || since_trial_ < (slower ? min_interval : trial_interval)) return;
    since_trial_ = 0;
    last_trial_ = after(last_trial_);
    if (last_trial_ == way_) last_trial_ = after(last_trial_);
    way_ = last_trial_;
  }

 private:
  /// Of one way.
  struct Times {
    static constexpr int enough = 3;
    static constexpr double weight = 0.125;  // of a longer time: ranks lose their core now and then

    int transfers = 0;
    double seconds = 0;

    bool is_known() const { return transfers >= enough; }
    void add(double latest) {
      transfers += !is_known();
      if (transfers == 1) return;  // the pages of arrays and slots may have been new
      seconds = seconds == 0 || latest < seconds ? latest : seconds + weight * (latest - seconds);
    }
  };

  static constexpr double slower_by = 1.5;                      // than the same way before: something has changed
  static constexpr int trial_interval = 128, min_interval = 8;  // transfers until another way is tried again
  static constexpr std::size_t ways = 3;

  static std::size_t index(CopyWay way) { return static_cast<std::size_t>(way); }
  CopyWay after(CopyWay way) const { return way == CopyWay::cached ? first_ : static_cast<CopyWay>(index(way) + 1); }

  /// One that is not known yet, else the fastest.
  CopyWay fastest() const {
    CopyWay best = first_;
    for (CopyWay way = first_;; way = after(way)) {
      const Times &times = times_[index(way)], &least = times_[index(best)];
      if (!times.is_known()) return way;
      if (times.seconds < least.seconds) best = way;
      if (way == CopyWay::cached) return best;
    }
  }

  CopyWay first_ = CopyWay::streamed, way_ = CopyWay::streamed, last_trial_ = CopyWay::cached;
  int since_trial_ = 0;
  std::array<Times, ways> times_{};
};

}  // namespace dace_redist
