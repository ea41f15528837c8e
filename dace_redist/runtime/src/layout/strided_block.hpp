// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A box of elements described by counts and strides on both sides of a copy.

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace dace_redist {

/// Most dimensions a block may have; blocks hold arrays of this length, so that planning needs no allocation per block.
inline constexpr int max_block_dims = 24;

/// A box of elements and where it lies on both sides.
///
/// Counts and strides are given outermost dimension first; strides may be negative, and zero on the source.
struct StridedBlock {
  int ndim = 0;                                               ///< 0: exactly one element
  std::int64_t source_offset = 0;                             ///< elements from the start of the source array
  std::int64_t target_offset = 0;                             ///< elements from the start of the target array
  std::array<std::int64_t, max_block_dims> counts{};          ///< [ndim], >= 0
  std::array<std::int64_t, max_block_dims> source_strides{};  ///< [ndim], elements
  std::array<std::int64_t, max_block_dims> target_strides{};  ///< [ndim], elements

  /// Number of elements: the product of the counts, 0 if one of them is 0.
  constexpr std::int64_t count() const {
    std::int64_t product = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(ndim); ++d) product *= counts[d];
    return product;
  }
};

namespace detail {

/// Drops dimensions of count 1 and merges neighbours that are contiguous on both sides of all blocks; keeps the order.
/// A block is anything with `ndim`, `counts`, `source_strides` and `target_strides`.
///
/// \param entries  One or more, whose blocks have equal counts.
/// \param block_of  Called as `block_of(entry)`: a reference to its block.
template <class Entries, class BlockOf>
constexpr void merge_dimensions(Entries& entries, const BlockOf& block_of) {
  const auto& first = block_of(*std::begin(entries));
  std::size_t kept = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(first.ndim); ++d) {
    const std::int64_t count = first.counts[d];
    if (count == 1) continue;
    bool contiguous = kept > 0;
    for (auto& entry : entries) {
      const auto& block = block_of(entry);
      contiguous = contiguous && block.source_strides[kept - 1] == block.source_strides[d] * count &&
                   block.target_strides[kept - 1] == block.target_strides[d] * count;
    }
    if (!contiguous) ++kept;
    for (auto& entry : entries) {
      auto& block = block_of(entry);
      block.counts[kept - 1] = contiguous ? block.counts[kept - 1] * count : count;
      block.source_strides[kept - 1] = block.source_strides[d];
      block.target_strides[kept - 1] = block.target_strides[d];
    }
  }
  for (auto& entry : entries) block_of(entry).ndim = static_cast<int>(kept);
}

/// The dimensions of one block.
template <class Block>
constexpr void merge_dimensions(Block& block) {
  Block* const one[] = {&block};
  merge_dimensions(one, [](Block* entry) -> Block& { return *entry; });
}

}  // namespace detail

/// The same copy with dimensions of one element dropped and neighbours merged where contiguous on both sides.
///
/// Keeps the order of the remaining dimensions.
constexpr StridedBlock merged(const StridedBlock& block) {
  StridedBlock result = block;
  detail::merge_dimensions(result);
  return result;
}

}  // namespace dace_redist
