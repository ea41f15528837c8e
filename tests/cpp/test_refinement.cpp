// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Blocks of both sides of a message, refined: the same pairs of elements as the lists of both sides, element by
/// element.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "layout/refinement.hpp"
#include "random.hpp"

using dace_redist::Index;
using dace_redist::SideBlock;
using dace_redist::StridedBlock;

using Pairs = std::vector<std::pair<Index, Index>>;

/// Places of the elements in their order.
std::vector<Index> places(const std::vector<SideBlock>& side) {
  std::vector<Index> all;
  for (const SideBlock& block : side)
    for (Index element = 0; element < block.count(); ++element) {
      Index place = block.offset, rest = element;
      for (std::size_t loop = block.loops.size(); loop-- > 0; rest /= block.loops[loop].count)
        place += rest % block.loops[loop].count * block.loops[loop].stride;
      all.push_back(place);
    }
  return all;
}

Pairs pairs_of(const std::vector<StridedBlock>& blocks) {
  Pairs pairs;
  for (const StridedBlock& block : blocks)
    for (Index element = 0; element < block.count(); ++element) {
      std::pair<Index, Index> pair{block.source_offset, block.target_offset};
      Index rest = element;
      for (auto d = static_cast<std::size_t>(block.ndim); d-- > 0; rest /= block.counts[d]) {
        pair.first += rest % block.counts[d] * block.source_strides[d];
        pair.second += rest % block.counts[d] * block.target_strides[d];
      }
      pairs.push_back(pair);
    }
  return pairs;
}

/// Random blocks with `count` elements altogether.
std::vector<SideBlock> random_side(Random& random, Index count) {
  std::vector<SideBlock> side;
  while (count > 0) {
    Index rest = random.one_in(3) ? random.between(1, count) : count;
    count -= rest;
    SideBlock& block = side.emplace_back();
    block.offset = random.between(-50, 50);
    while (rest > 1 && block.loops.size() < 5) {
      std::vector<Index> factors;
      for (Index factor = 1; factor <= rest; ++factor)
        if (rest % factor == 0) factors.push_back(factor);
      const Index factor = random.one_of(factors);
      block.loops.push_back({factor, random.between(-30, 30)});
      rest /= factor;
    }
    if (rest > 1) block.loops.push_back({rest, 1});
  }
  return side;
}

/// Whether the blocks are as few as the periods allow.
bool is_short(const std::vector<SideBlock>& source, const std::vector<SideBlock>& target, std::size_t most) {
  const std::size_t blocks = refine(source, target).size();
  if (blocks <= most) return true;
  std::printf("%zu blocks, expected at most %zu\n", blocks, most);
  return false;
}

int main(int argc, char** argv) {
  const int trials = argc > 1 ? std::atoi(argv[1]) : 20000;
  Random random(1);
  int failures = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const Index count = random.one_of<Index>({1, 2, 6, 24, 30, 48, 60, 72, 97, 120, 144, 210, 240});
    const std::vector<SideBlock> source = random_side(random, count), target = random_side(random, count);
    const std::vector<Index> from = places(source), to = places(target);
    Pairs expected, found = pairs_of(refine(source, target));
    for (std::size_t i = 0; i < from.size(); ++i) expected.push_back({from[i], to[i]});
    std::sort(expected.begin(), expected.end());
    std::sort(found.begin(), found.end());
    if (expected == found) continue;
    std::printf("trial %d: %zu pairs of elements, expected %zu others\n", trial, found.size(), expected.size());
    ++failures;
  }
  failures += !is_short({{0, {{1000, 30}, {24, 1}}}}, {{0, {{1500, 20}, {16, 1}}}}, 4);
  failures += !is_short({{0, {{10, 99999}, {300, 30}, {24, 1}}}}, {{0, {{4500, 20}, {16, 1}}}}, 4);
  failures += !is_short({{0, {{64, 4096}, {32, 64}, {64, 1}}}}, {{0, {{64, 4096}, {2048, 1}}}}, 1);
  failures += !is_short({{0, {{1000000, 3}}}}, {{0, {{1000, 1}, {1000, 1000}}}}, 1);
  std::printf("%d failures\n", failures);
  return failures > 0;
}
