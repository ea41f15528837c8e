// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How messages between two ranks of a node are copied: by whichever way takes less time.

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

/// Which of several ways of doing the same takes the least time.
///
/// Every way is timed in the first transfers, a much slower one once only, and the fastest one taken from then on. Now
/// and then another one is tried again.
class TimedChoice {
 public:
  /// \param first  of the ways, of which `last` is the last.
  /// \param way  until others were timed.
  TimedChoice(std::size_t first, std::size_t last, std::size_t way) : first_(first), last_(last), way_(way) {}

  std::size_t way() const { return way_; }

  /// The first way is not taken any more.
  void forbid_first() {
    if (way_ == first_++) way_ = fastest();
  }
  std::size_t first() const { return first_; }

  /// Takes note of what the last transfer took, and chooses for the next one. The first transfer of all does not count:
  /// pages are touched for the first time.
  void learn(double time, bool counts = true) {
    if (++since_trial_ == 0 || !counts) return;
    times_[way_].add(time);
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

  std::size_t after(std::size_t way) const { return way >= last_ ? first_ : way + 1; }

  /// Whether the times of a way tell whether it is the fastest.
  bool is_known(std::size_t way) const {
    const Times& times = times_[way];
    if (times.count() >= enough) return true;
    double least = std::numeric_limits<double>::infinity();
    for (const Times& other : times_)
      if (other.count() >= enough) least = std::min(least, other.median());
    return times.count() > 0 && times.median() >= hopeless * least;
  }

  /// One that is not known yet, else the fastest.
  std::size_t fastest() const {
    std::size_t best = first_;
    for (std::size_t way = first_; way <= last_; ++way) {
      if (!is_known(way)) return way;
      if (times_[way].median() < times_[best].median()) best = way;
    }
    return best;
  }

  std::size_t first_, last_, way_, last_trial_ = last_;
  int since_trial_ = -1;
  std::array<Times, 3> times_{};  // [ways]
};

/// Copied by the receiver out of the sender's memory, by the kernel; or staged in slots, which the sender writes with
/// non-temporal stores, so that they lie in memory, or with ordinary ones, so that they lie in its core's cache.
enum class CopyWay { read, streamed, cached };

/// The way of a message in each transfer.
///
/// A core that shares a cache with the sender's takes a piece from there sooner than from memory; any other core up to
/// four times later. What the kernel takes to read differs by a factor of three between machines, and where ranks share
/// cores, staging has them wait for each other. Nothing says reliably which of these holds, and it may change.
///
/// What counts is the time of the whole transfer: what a message takes by itself also depends on what both ranks copy
/// for others meanwhile. Most messages of a plan try the same way in the same transfer.
class CopyChoice {
 public:
  CopyChoice() : CopyChoice(CopyWay::streamed, false) {}
  /// \param way  until others were timed.
  CopyChoice(CopyWay way, bool may_read)
      : choice_(index(may_read ? CopyWay::read : CopyWay::streamed), index(CopyWay::cached), index(way)) {}

  /// From now on the message is staged.
  void forbid_reading() {
    if (choice_.first() == index(CopyWay::read)) choice_.forbid_first();
  }

  CopyWay way() const { return static_cast<CopyWay>(choice_.way()); }

  /// Takes note of what the last transfer took, and chooses for the next one.
  /// \param time  of the transfer, of the rank that began it last.
  void learn(double time) {
    const bool new_slots = way() != CopyWay::read && std::exchange(slots_are_new_, false);
    choice_.learn(time, !new_slots);
  }

 private:
  static std::size_t index(CopyWay way) { return static_cast<std::size_t>(way); }

  TimedChoice choice_;
  bool slots_are_new_ = true;
};

/// Whether copies from or into node-shared arrays use non-temporal stores.
///
/// What ordinary stores leave in the cache of the writer's core is read sooner from there than from memory, or later:
/// this depends on the cores and on the pages. The owner of a target reads it after the transfer, so what counts is the
/// time from the start of a transfer to the start of the next, unless the program does much else between them.
class StoreChoice {
 public:
  StoreChoice() = default;
  /// \param threshold  bytes from which non-temporal stores are expected to be faster.
  /// \param bytes  that a rank sends or receives: around the threshold, both kinds of stores are timed.
  /// \param fixed  whether the threshold always decides.
  StoreChoice(std::int64_t threshold, std::int64_t bytes, bool fixed)
      : threshold_(threshold),
        timed_(!fixed && bytes >= threshold / min_timed_divisor && bytes <= threshold * max_timed_factor) {}

  /// A transfer from or into node-shared arrays starts.
  /// \param since_last  seconds since the last one started.
  /// \param taken  seconds that the last one took by itself.
  void begin(double since_last, double taken) {
    const bool repeated = timed_ && since_last <= max_others * taken;
    if (std::exchange(repeated_, repeated) && repeated) choice_.learn(since_last);
  }

  bool streams(std::int64_t bytes) const { return (bytes >= threshold_) != (repeated_ && choice_.way() == opposite); }

 private:
  static constexpr std::int64_t min_timed_divisor = 64, max_timed_factor = 4;
  static constexpr double max_others = 4;                   // times a transfer, from one to the next
  static constexpr std::size_t expected = 0, opposite = 1;  // the kind that the threshold names, and the other one

  std::int64_t threshold_ = 0;
  bool timed_ = false, repeated_ = false;
  TimedChoice choice_{expected, opposite, expected};
};

}  // namespace dace_redist
