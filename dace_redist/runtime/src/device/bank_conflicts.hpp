// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Where to leave gaps in shared memory so that the threads of a warp write to different banks.
/// Start reading at: best_gap_shift().

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/tile_kernels.hpp"

namespace dace_redist {

namespace detail {

/// How often a bank is accessed by a warp, at most; accesses to the same four bytes are one.
template <class Word>
std::size_t bank_passes(const std::vector<BoxRead>& reads, std::size_t first, std::uint32_t gap_shift) {
  constexpr std::size_t banks = 32, threads = 32, bank_bytes = 4;
  std::array<std::vector<std::uint32_t>, banks> accessed;
  for (std::size_t at = first; at < std::min(reads.size(), first + threads); ++at) {
    const std::uint32_t byte = shared_byte<Word>(reads[at].position, gap_shift);
    for (std::uint32_t part = 0; part < sizeof(Word); part += bank_bytes) {
      const auto row = static_cast<std::uint32_t>((byte + part) / bank_bytes);
      std::vector<std::uint32_t>& rows = accessed[row % banks];
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    }
  }
  std::size_t most = 0;
  for (const std::vector<std::uint32_t>& rows : accessed) most = std::max(most, rows.size());
  return most;
}

}  // namespace detail

/// TileGroup::gap_shift for which the words of a box are written to shared memory in the fewest passes.
/// \param reads  of the box.
template <class Word>
std::uint32_t best_gap_shift(const std::vector<BoxRead>& reads) {
  constexpr std::uint32_t no_gaps = 31, least = least_gap_shift<Word>;
  constexpr std::size_t looked_at = 512;  // words
  std::uint32_t best = no_gaps;
  std::size_t fewest = ~std::size_t{0};
  for (const std::uint32_t shift : {no_gaps, least, least + 1, least + 2, least + 3}) {
    std::size_t passes = 0;
    for (std::size_t first = 0; first < std::min(reads.size(), looked_at); first += 32)
      passes += detail::bank_passes<Word>(reads, first, shift);
    if (passes < fewest) {
      fewest = passes;
      best = shift;
    }
  }
  return best;
}

}  // namespace dace_redist
