// SPDX-License-Identifier: BSD-3-Clause
// Random numbers, equal for equal seeds with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  /// The numbers from 0 to n - 1 in random order.
  template <class T>
  std::vector<T> permutation(T n) {
    std::vector<T> order;
    for (T i = 0; i < n; ++i) order.insert(order.begin() + between(0, static_cast<std::int64_t>(i)), i);
    return order;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace
