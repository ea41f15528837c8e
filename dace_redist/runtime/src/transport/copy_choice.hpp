// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How a message between private arrays of two ranks of a node is copied: by whichever way takes less time.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace dace_redist {

/// Measures the time since a start.
class Clock {
 public:
  void start() { start_ = now(); }
  double seconds() const { return std::chrono::duration<double>(now() - start_).count(); }

 private:
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

  std::chrono::steady_clock::time_point start_;
};

/// Copied by the receiver out of the sender's memory, by the kernel; or staged in slots, which the sender writes with
/// non-temporal stores, so that they lie in memory, or with ordinary ones, so that they lie in its core's cache.
enum class CopyWay { read, streamed, cached };

/// The way of a message in each transfer.
///
/// A core that shares a cache with the sender's takes a piece from there sooner than from memory; any other core up to
/// four times later. What the kernel takes to read differs by a factor of three between machines, and where ranks share
/// cores, staging has them wait for each other. Nothing says reliably which of these holds, and it may change: so every
/// way is timed in the first transfers, a much slower one once only, and the fastest one taken from then on. Now and
/// then another one is tried again.
///
/// What counts is the time of the whole transfer: what a message takes by itself also depends on what both ranks copy
/// for others meanwhile. Most messages of a plan try the same way in the same transfer.
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
  /// \param time  of the transfer, of the rank that began it last.
  void learn(double time) {
    const bool new_slots = way_ != CopyWay::read && std::exchange(slots_are_new_, false);
    if (++since_trial_ == 0 || new_slots) return;  // pages are touched for the first time
    times_[index(way_)].add(time);
    way_ = fastest();
    if (!is_known(way_) || since_trial_ < trial_interval) return;
    since_trial_ = 0;
    last_trial_ = after(last_trial_);
    if (last_trial_ == way_) last_trial_ = after(last_trial_);
    way_ = last_trial_;
  }

 private:
  /// The latest times of one way. Their median counts, the lower one of an even number: ranks lose their core now
  /// and then, and where they share cores, some begin late.
  class Times {
   public:
    void add(double time) {
      latest_[transfers_++ % latest_.size()] = time;
      auto sorted = latest_;
      const std::size_t count = std::min(transfers_, sorted.size());
      std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
      median_ = sorted[(count - 1) / 2];
    }

    std::size_t count() const { return transfers_; }
    double median() const { return median_; }

   private:
    std::size_t transfers_ = 0;
    std::array<double, 5> latest_{};
    double median_ = 0;
  };

  static constexpr std::size_t enough = 3;    // transfers
  static constexpr double hopeless = 1.5;     // times as long as the fastest way: one transfer is enough
  static constexpr int trial_interval = 128;  // transfers until another way is tried again

  static std::size_t index(CopyWay way) { return static_cast<std::size_t>(way); }
  CopyWay after(CopyWay way) const { return way == CopyWay::cached ? first_ : static_cast<CopyWay>(index(way) + 1); }

  /// Whether the times of a way tell whether it is the fastest.
  bool is_known(CopyWay way) const {
    const Times& times = times_[index(way)];
    if (times.count() >= enough) return true;
    double least = std::numeric_limits<double>::infinity();
    for (const Times& other : times_)
      if (other.count() >= enough) least = std::min(least, other.median());
    return times.count() > 0 && times.median() >= hopeless * least;
  }

  /// One that is not known yet, else the fastest.
  CopyWay fastest() const {
    CopyWay best = first_;
    for (CopyWay way = first_;; way = after(way)) {
      if (!is_known(way)) return way;
      if (times_[index(way)].median() < times_[index(best)].median()) best = way;
      if (way == CopyWay::cached) return best;
    }
  }

  CopyWay first_ = CopyWay::streamed, way_ = CopyWay::streamed, last_trial_ = CopyWay::cached;
  int since_trial_ = -1;
  bool slots_are_new_ = true;
  std::array<Times, 3> times_{};  // [ways]
};

}  // namespace dace_redist
