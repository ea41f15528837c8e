// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// TimedChoice, given the time of each way: takes the fastest one after a few transfers, tries the others rarely, and
/// times much slower ones once; notices that times have changed. CopyChoice has the ways of a rank. StoreChoice, given
/// the times between transfers: takes the faster stores if these times are about the transfers, else those of the size.

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "transport/copy_choice.hpp"

namespace {

using dace_redist::CopyChoice;
using dace_redist::CopyWay;
using dace_redist::StoreChoice;
using dace_redist::TimedChoice;

int failures = 0;

void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

/// Time of each way, as those of a rank that reads.
using Times = std::array<double, 3>;

/// A choice whose transfers take the time of their way, and `more` where the one before took another way.
class Run {
 public:
  Run(std::size_t first, std::size_t delay) : choice_(3, first, delay), delay_(delay) {}

  /// \return how many took each way.
  std::array<int, 3> operator()(const Times& times, int transfers, double more = 0) {
    std::array<int, 3> taken{};
    for (int transfer = 0; transfer < transfers; ++transfer) {
      const std::size_t before = choice_.way();
      choice_.begin(past_[delay_ - 1] > 0 ? std::optional(past_[delay_ - 1]) : std::nullopt);
      ++taken[way()];
      const double time = times[way()] + (way() == before ? 0 : more);
      past_ = {time, past_[0]};
    }
    return taken;
  }

  std::size_t way() const { return choice_.way(); }

 private:
  TimedChoice choice_;
  std::size_t delay_;
  std::array<double, 2> past_{};
};

void check_fastest(std::size_t first, std::size_t delay) {
  for (std::size_t fastest = 0; fastest < 3; ++fastest) {
    Times times{2, 2, 2};
    times[fastest] = 1;
    Run run(first, delay);
    run({50, 50, 50}, 1);  // new pages
    check(run.way() == first, "the first way is the given one");
    run(times, 24, 50);
    const auto taken = run(times, 1000, 50);
    check(taken[fastest] >= 985, "the fastest way is taken");
    for (const int count : taken)
      check(count >= 4, "each way is tried again, and what it takes at first does not count");

    Times slow = times;
    slow[fastest] = 8;
    for (int transfer = 0; transfer < 100; ++transfer) {  // a rank loses its core in some transfers
      run(slow, 1);
      check(run(times, 20)[fastest] >= 17, "one long time makes no difference");
    }
    times[fastest] = 4;  // something has changed
    run(times, 16);
    check(run.way() != fastest, "a way that became slow is left");
  }
}

void check_slow() {
  Run run(0, 1);
  const auto taken = run({1, 3, 2}, 100);
  check(taken[1] == 2 && taken[2] == 2, "a way that takes much longer is timed once");

  Run unlucky(0, 1);
  unlucky({2, 2, 2}, 4);
  unlucky({2, 8, 2}, 2);  // a rank loses its core in the only transfer of the fastest way that counts
  unlucky({2, 1, 2}, 400);
  check(unlucky.way() == 1, "the fastest way is found in spite of a long time in its first transfer");
}

void check_ways() {
  const auto same = [](CopyWay way, bool reads, bool streams) { return way.reads == reads && way.streams == streams; };
  check(same(CopyChoice(true, false, true).way(), true, true), "long runs are read at first");
  check(same(CopyChoice(true, true, false).way(), false, true), "short ones are staged at first");
  check(same(CopyChoice(false, true, false).way(), false, true), "what cannot be read is staged");
  for (const bool some_staged : {false, true}) {
    CopyChoice choice(true, some_staged, true), never(false, some_staged, false);
    std::array<int, 4> taken{};
    for (int transfer = 0; transfer < 40; ++transfer) {
      choice.begin(1);
      never.begin(1);
      ++taken[2 * static_cast<std::size_t>(choice.way().reads) + static_cast<std::size_t>(choice.way().streams)];
      check(!never.way().reads, "nothing is read where nothing can be");
    }
    check(taken[0] > 3 && taken[1] > 3 && taken[3] > 3 && (taken[2] > 3) == some_staged, "every way is tried");
  }
}

/// Runs transfers. \return how many write with non-temporal stores.
int run_stores(StoreChoice& choice, std::int64_t bytes, double streamed, double ordinary, double share, int transfers) {
  int count = 0;
  double last = 1;
  for (int transfer = 0; transfer < transfers; ++transfer) {
    choice.begin(last, {0, share * last});
    count += choice.streams(bytes);
    last = choice.streams(bytes) ? streamed : ordinary;
  }
  return count;
}

void check_stores() {
  constexpr std::int64_t threshold = 1 << 20;
  for (const std::int64_t bytes : {threshold / 2, 2 * threshold}) {
    StoreChoice streamed(threshold, bytes, false), ordinary(threshold, bytes, false);
    check(run_stores(streamed, bytes, 1, 2, 0.5, 1000) >= 980, "non-temporal stores are taken where they are faster");
    check(run_stores(ordinary, bytes, 2, 1, 0.5, 1000) <= 20, "ordinary stores are taken where they are faster");
    const int expected = bytes < threshold ? 0 : 1000;
    StoreChoice fixed(threshold, bytes, true);
    check(run_stores(fixed, bytes, 1, 2, 0.5, 1000) == expected, "a threshold that is given decides");
    check(run_stores(fixed, bytes, 2, 1, 0.5, 1000) == expected, "a threshold that is given decides");
    check(run_stores(streamed, bytes, 2, 1, 0.1, 1000) == expected, "what a program does else decides nothing");
  }
  StoreChoice small(threshold, threshold / 1000, false), large(threshold, 5 * threshold, false);
  check(run_stores(small, threshold / 1000, 1, 2, 0.5, 1000) == 0, "few bytes are written with ordinary stores");
  check(run_stores(large, 5 * threshold, 2, 1, 0.5, 1000) == 1000, "many bytes are written with non-temporal stores");
}

}  // namespace

int main() {
  for (const std::size_t delay : {1, 2})
    for (const std::size_t first : {0, 1}) check_fastest(first, delay);
  check_slow();
  check_ways();
  check_stores();
  if (failures == 0) std::printf("all checks passed\n");
  return failures != 0;
}
