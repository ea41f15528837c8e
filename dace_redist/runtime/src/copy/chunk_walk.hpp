// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The order in which a block is copied: chunks that fit the cache.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "copy/copy_block.hpp"
#include "copy/copy_kernels.hpp"

namespace dace_redist::detail {

/// Walks a block in chunks, each a plane of two of its dimensions. The block must outlive the walk.
class ChunkWalk {
 public:
  static constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();  ///< runs of a dimension in one chunk

  /// Lengths of the chunks of a dimension, in runs. The last chunk may be longer than the others, up to `max_last`.
  /// `first` and `others` are at most `max_last`.
  struct Lengths {
    std::int64_t first, others, max_last;
  };

  /// \param row_dim  Dimension of the rows, -1: one row; the columns are the last dimension, if there is one.
  /// \param rows, columns  Runs of a chunk in these two dimensions; the last chunk of a dimension may be smaller.
  ChunkWalk(const CopyBlock& block, int row_dim, std::int64_t rows, std::int64_t columns)
      : ChunkWalk(block, row_dim, {rows, rows, rows}, {columns, columns, columns}) {}

  ChunkWalk(const CopyBlock& block, int row_dim, Lengths rows, Lengths columns)
      : block_(block), row_dim_(row_dim), column_dim_(block.ndim - 1) {
    lengths_.fill({1, 1, 1});
    if (row_dim_ >= 0) lengths_[static_cast<std::size_t>(row_dim_)] = rows;
    if (column_dim_ >= 0) lengths_[static_cast<std::size_t>(column_dim_)] = columns;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      if (length(d) < block.counts[d]) walked_[walked_count_++] = d;
  }

  std::int64_t source() const { return source_; }
  std::int64_t target() const { return target_; }
  /// Distance of the chunk from the start of another block of these counts, by its strides.
  std::int64_t offset(const std::array<std::int64_t, max_block_dims>& strides) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < walked_count_; ++i) sum += index_[walked_[i]] * strides[walked_[i]];
    return sum;
  }

  Plane plane() const {
    Plane plane{1, 1, block_.run_bytes, 0, 0, 0, 0, 0};
    if (row_dim_ >= 0) {
      const auto row = static_cast<std::size_t>(row_dim_);
      plane.rows = length(row);
      plane.source_row = block_.source_strides[row];
      plane.target_row = block_.target_strides[row];
    }
    if (column_dim_ >= 0) {
      const auto column = static_cast<std::size_t>(column_dim_);
      plane.columns = length(column);
      plane.source_column = block_.source_strides[column];
      plane.target_column = block_.target_strides[column];
    }
    return plane;
  }

  /// Goes to the next chunk; false after the last one.
  bool advance() {
    for (std::size_t at = walked_count_; at-- > 0;) {
      const std::size_t d = walked_[at];
      move(d, length(d));
      if (index_[d] < block_.counts[d]) return true;
      move(d, -index_[d]);
    }
    return false;
  }

 private:
  /// Runs of the chunk in a dimension.
  std::int64_t length(std::size_t d) const {
    const std::int64_t rest = block_.counts[d] - index_[d];
    if (rest <= lengths_[d].max_last) return rest;
    return index_[d] == 0 ? lengths_[d].first : lengths_[d].others;
  }

  void move(std::size_t d, std::int64_t by) {
    index_[d] += by;
    source_ += by * block_.source_strides[d];
    target_ += by * block_.target_strides[d];
  }

  const CopyBlock& block_;
  int row_dim_, column_dim_;
  std::array<Lengths, max_block_dims> lengths_;       // [ndim]
  std::array<std::int64_t, max_block_dims> index_{};  // [ndim], first run of the chunk
  std::array<std::size_t, max_block_dims> walked_;    // [walked_count_], dimensions of more than one chunk
  std::size_t walked_count_ = 0;
  std::int64_t source_ = 0, target_ = 0;  // bytes of the chunk from the start of the block
};

}  // namespace dace_redist::detail
