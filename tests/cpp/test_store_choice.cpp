// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The choice between ordinary and non-temporal stores by the time that each takes.
///
/// Usage: test_store_choice

#include <cstdio>

#include "transport/store_choice.hpp"

namespace {

using namespace dace_redist;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("%s\n", what);
}

/// A sender tries both stores, takes those that took less time, and tries again when something has changed.
void check_stores() {
  StoreChoice choice;
  expect(choice.streams(), "non-temporal stores do not come first");
  choice.learn(2.0);
  expect(!choice.streams(), "ordinary stores are not tried");
  for (int exchange = 0; exchange < 10; ++exchange) {
    choice.learn(1.0);
    expect(!choice.streams(), "the faster stores are not kept");
  }
  choice.learn(3.0);
  expect(choice.streams(), "the others are not tried once these take longer");
  choice.learn(2.0);
  expect(choice.streams(), "the others are faster now, but not kept");
  int kept = 0;
  for (; choice.streams() && kept < 1000; ++kept) choice.learn(2.0);
  expect(kept > 100 && kept < 1000, "the others are tried too often, or never again");
}

}  // namespace

int main() {
  check_stores();
  return failures != 0;
}
