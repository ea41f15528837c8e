// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Cutting of an array in a file into pieces for the ranks that read or write it. Start reading at: rounds.

#include <cstddef>
#include <vector>

#include "layout/distribution.hpp"

namespace dace_redist {

/// Bytes that a rank reads or writes at a time, and of the share of a rank that is chosen to.
constexpr Index piece_bytes = Index{64} << 20, min_share_bytes = Index{4} << 20;
/// A rank reads its own part if it has runs of a block of the file system, within these limits. It writes its own part
/// from the upper limit on: a new file that ranks write in turns by shorter runs lies on the disk in as many parts.
constexpr Index min_run_bytes = Index{16} << 10, max_run_bytes = Index{1} << 20;

/// How an array lies in a file: in C order of its chunks, which are single elements in a file without chunks.
struct FileLayout {
  std::vector<Index> shape;  ///< in the order of storage
  Index element_bytes;
  std::vector<Index> unit;  ///< [ndim] extents of a chunk
  std::vector<Index> lead;  ///< [ndim] indices before the first boundary of chunks
};

/// Who takes pieces of what size.
struct PieceLimits {
  Index ranks;
  Index max_bytes;  ///< of a piece, unless a layer of chunks is larger
  Index min_share;  ///< bytes of a layer above which ranks without a piece are avoided
};

/// A part of an array of which each rank takes a block along one axis.
struct Round {
  std::vector<Index> lower, extents;  ///< [ndim] first index, and shape
  std::size_t axis;
  Index block;  ///< elements along the axis

  Index elements_of_piece() const;
  /// Its distribution over ranks.
  Encoding pieces(const std::vector<Index>& ranks) const;
};

/// The parts of an array, in the order of storage. A piece is contiguous in a file without chunks; else it ends where
/// chunks end.
std::vector<Round> rounds(const FileLayout& layout, const PieceLimits& limits);

}  // namespace dace_redist
