// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// CopyChoice, given the time of each way: takes the fastest one after a few transfers, tries the others rarely, and
/// much slower ones once; notices that times have changed, and never reads where that is forbidden. StoreChoice, given
/// the times between transfers: takes the faster stores if these times are about the transfers, else those of the size.

#include <array>
#include <cstdint>
#include <cstdio>

#include "transport/copy_choice.hpp"

namespace {

using dace_redist::CopyChoice;
using dace_redist::CopyWay;
using dace_redist::StoreChoice;

int failures = 0;

void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

/// Time of a way: [read, streamed, cached].
using Times = std::array<double, 3>;

/// Runs transfers. \return how many took each way.
std::array<int, 3> run(CopyChoice& choice, const Times& times, int transfers) {
  std::array<int, 3> taken{};
  for (int transfer = 0; transfer < transfers; ++transfer) {
    const auto way = static_cast<std::size_t>(choice.way());
    ++taken[way];
    choice.learn(times[way]);
  }
  return taken;
}

void check_fastest(CopyWay first) {
  for (std::size_t fastest = 0; fastest < 3; ++fastest) {
    Times times{2, 2, 2};
    times[fastest] = 1;
    CopyChoice choice(first, true);
    run(choice, {50, 50, 50}, 1);  // new pages
    run(choice, times, 8);
    const auto taken = run(choice, times, 1000);
    check(taken[fastest] >= 990, "the fastest way is taken");
    for (const int count : taken) check(count >= 2, "each way is tried again");

    for (int transfer = 0; transfer < 100; ++transfer) {  // a rank loses its core in some transfers
      choice.learn(static_cast<std::size_t>(choice.way()) == fastest ? 8 : 2);
      check(run(choice, times, 20)[fastest] >= 18, "one long time makes no difference");
    }
    times[fastest] = 4;  // something has changed
    run(choice, times, 16);
    check(static_cast<std::size_t>(choice.way()) != fastest, "a way that became slow is left");
  }
}

void check_slow() {
  CopyChoice choice(CopyWay::read, true);
  run(choice, {1, 3, 2}, 4);
  run(choice, {50, 50, 50}, 1);  // new slots
  const auto taken = run(choice, {1, 3, 2}, 20);
  check(taken[1] == 1 && taken[2] == 1, "a way that takes much longer is tried once");

  CopyChoice unlucky(CopyWay::read, true);
  run(unlucky, {2, 2, 2}, 3);
  run(unlucky, {2, 8, 2}, 1);  // a rank loses its core in the only transfer of the fastest way
  run(unlucky, {2, 1, 2}, 300);
  check(unlucky.way() == CopyWay::streamed, "the fastest way is found in spite of a long time in its first transfer");
}

void check_forbidden() {
  CopyChoice choice(CopyWay::read, true), never(CopyWay::cached, false);
  check(choice.way() == CopyWay::read && never.way() == CopyWay::cached, "the first way is the given one");
  run(choice, {1, 3, 2}, 20);
  check(choice.way() == CopyWay::read, "reading is the fastest way");
  choice.forbid_reading();
  check(choice.way() == CopyWay::cached, "the next best way is taken where reading is forbidden");
  for (CopyChoice* one : {&choice, &never}) {
    check(run(*one, {0.1, 3, 2}, 1000)[0] == 0, "nothing is read where that is forbidden");
    check(one->way() == CopyWay::cached, "the faster stores are taken");
  }
}

/// Runs transfers. \return how many write with non-temporal stores.
int run_stores(StoreChoice& choice, std::int64_t bytes, double streamed, double ordinary, double share, int transfers) {
  int count = 0;
  double last = 1;
  for (int transfer = 0; transfer < transfers; ++transfer) {
    choice.begin(last, share * last);
    count += choice.streams(bytes);
    last = choice.streams(bytes) ? streamed : ordinary;
  }
  return count;
}

void check_stores() {
  constexpr std::int64_t threshold = 1 << 20;
  for (const std::int64_t bytes : {threshold / 2, 2 * threshold}) {
    StoreChoice streamed(threshold, bytes, false), ordinary(threshold, bytes, false);
    check(run_stores(streamed, bytes, 1, 2, 0.5, 1000) >= 985, "non-temporal stores are taken where they are faster");
    check(run_stores(ordinary, bytes, 2, 1, 0.5, 1000) <= 15, "ordinary stores are taken where they are faster");
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
  check_fastest(CopyWay::read);
  check_fastest(CopyWay::streamed);
  check_slow();
  check_forbidden();
  check_stores();
  if (failures == 0) std::printf("all checks passed\n");
  return failures != 0;
}
