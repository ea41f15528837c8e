// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How messages between two ranks of a node are copied: by whichever way takes less time.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/stay.hpp"

namespace dace_redist {

/// Which of several ways of doing the same takes the least time.
///
/// Every way is timed in the first transfers, a much slower one once only, and the fastest one taken from then on. Now
/// and then another one is tried again. A transfer counts whose way is that of the one before: the first of all touches
/// new pages, and the first by another way finds in the caches what the ways before have left there. A trial is two
/// transfers, and others follow by the fastest way until its time is known.
class TimedChoice {
 public:
  /// \param ways  their number, up to 4.
  /// \param way  that is taken until others were timed.
  /// \param delay  transfers, 1 or 2, until the time of a transfer is known.
  TimedChoice(std::size_t ways, std::size_t way, std::size_t delay)
      : ways_(ways), first_(way), way_(way), delay_(delay), last_trial_(way) {}

  std::size_t way() const { return way_; }

  /// Chooses for the transfer that begins.
  /// \param time  of the transfer that began `delay` transfers ago; none if it was not by the way of this choice.
  void begin(std::optional<double> time) {
    const std::size_t timed = taken_[delay_ - 1];
    if (time && timed < ways_ && timed == taken_[delay_]) times_[timed].add(*time);
    choose();
    taken_ = {way_, taken_[0], taken_[1]};
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

  static constexpr std::size_t enough = 3;            // transfers
  static constexpr double hopeless = 1.5;             // times as long as the fastest way: one transfer is enough
  static constexpr std::size_t trial_interval = 128;  // transfers until another way is tried again
  static constexpr std::size_t trial_transfers = 2;   // of which the second counts

  std::size_t after(std::size_t way) const { return (way + 1) % ways_; }

  void choose() {
    if (++since_trial_ < trial_transfers) return;
    way_ = fastest();
    if (!is_known(way_) || since_trial_ < trial_transfers + delay_ - 1) return;
    std::size_t next = last_trial_;
    do next = after(next);
    while (is_known(next) && next != last_trial_);
    if (is_known(next)) {  // as all are
      if (since_trial_ < trial_interval) return;
      next = after(next);
      if (next == way_) next = after(next);
    }
    way_ = last_trial_ = next;
    since_trial_ = 0;
  }

  /// Whether the times of a way tell whether it is the fastest.
  bool is_known(std::size_t way) const {
    const Times& times = times_[way];
    if (times.count() >= enough) return true;
    double least = std::numeric_limits<double>::infinity();
    for (const Times& other : times_)
      if (other.count() >= enough) least = std::min(least, other.median());
    return times.count() > 0 && times.median() >= hopeless * least;
  }

  /// Of the ways that are known; the first one before that.
  std::size_t fastest() const {
    std::size_t best = first_;
    for (std::size_t way = 0; way < ways_; ++way)
      if (is_known(way) && (!is_known(best) || times_[way].median() < times_[best].median())) best = way;
    return best;
  }

  static constexpr std::size_t max_ways = 4;

  std::size_t ways_, first_, way_, delay_, last_trial_;
  std::size_t since_trial_ = trial_interval;                        // transfers
  std::array<std::size_t, 3> taken_{max_ways, max_ways, max_ways};  // ways of the last transfers, the latest first
  std::array<Times, max_ways> times_{};                             // [ways]
};

/// How the messages of a rank are copied that could be copied in several ways. Those that the kernel can read may be
/// copied by the receiver out of the sender's memory. Others are staged in slots, which the sender writes with
/// non-temporal stores, so that they lie in memory, or with ordinary ones, so that they lie in its core's cache.
struct CopyWay {
  bool reads, streams;
};

/// The way of the messages of a rank in each transfer.
///
/// A core that shares a cache with the sender's takes a piece from there sooner than from memory; any other core up to
/// four times later. What the kernel takes to read differs by a factor of three between machines, and where ranks share
/// cores, staging has them wait for each other. Nothing says reliably which of these holds, and it may change.
///
/// What counts is the time of the whole transfer, from when the last of a rank and its receivers began to when the last
/// one ended: what a message takes by itself also depends on what both ranks copy for others meanwhile. So all messages
/// of a rank take the same way, and ranks that have the same partners, and see the same times, try and take the same
/// one.
class CopyChoice {
 public:
  CopyChoice() : CopyChoice(false, true, false) {}
  /// \param some_read  whether some of the messages can be read.
  /// \param some_staged  whether some cannot.
  /// \param reads_first  whether those are read until other ways were timed.
  CopyChoice(bool some_read, bool some_staged, bool reads_first)
      : ways_(known_ways(some_read, some_staged)),
        choice_(ways_.size(), some_read && !reads_first ? ways_.size() - 2 : 0, 2) {}

  CopyWay way() const { return ways_[choice_.way()]; }

  /// Chooses for the transfer that begins.
  /// \param time  that the last but one took; none if no message took the way of the choice.
  void begin(std::optional<double> time) { choice_.begin(time); }

 private:
  static std::vector<CopyWay> known_ways(bool some_read, bool some_staged) {
    std::vector<CopyWay> ways;
    if (some_read) ways.push_back({true, true});
    if (some_read && some_staged) ways.push_back({true, false});
    ways.insert(ways.end(), {{false, true}, {false, false}});
    return ways;
  }

  std::vector<CopyWay> ways_;
  TimedChoice choice_;
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
  /// \param now  of the clock of Stay.
  void begin(double now, const Stay& last) {
    const double since_last = now - last.begun;
    const bool repeated = timed_ && since_last <= max_others * last.seconds();
    choice_.begin(std::exchange(repeated_, repeated) && repeated ? std::optional(since_last) : std::nullopt);
  }

  bool streams(std::int64_t bytes) const { return (bytes >= threshold_) != (repeated_ && choice_.way() == opposite); }

 private:
  static constexpr std::int64_t min_timed_divisor = 64, max_timed_factor = 4;
  static constexpr double max_others = 4;                   // times a transfer, from one to the next
  static constexpr std::size_t expected = 0, opposite = 1;  // the kind that the threshold names, and the other one

  std::int64_t threshold_ = 0;
  bool timed_ = false, repeated_ = false;
  TimedChoice choice_{2, expected, 1};
};

}  // namespace dace_redist
