// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The upper or lower part of a submatrix, as messages.

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "side.hpp"

namespace dace_redist::scalapack {

/// Trapezoid of a submatrix, whose diagonal ends in the last row and column of an upper one, and begins in the first
/// row or column so that it ends there of a lower one.
struct Triangle {
  /// Rows of a column, from `begin` to `end`.
  struct Rows {
    std::int64_t begin, end;
  };
  Rows rows(std::int64_t column) const;

  int m, n;
  bool upper, without_diagonal;
};

/// Indices that lie in one block of both sides.
struct Run {
  std::int64_t begin, end;
  std::int64_t local;  ///< index of the first one in the local array of this process
};

/// Blocks of this process's array that the other side has.
class TriangleBlocks {
 public:
  TriangleBlocks(const Triangle& triangle, const Part& own, const Part& other);
  const std::vector<dr_block>& blocks() const { return blocks_; }

 private:
  /// Adds the elements of some columns and rows.
  void add(const Triangle& triangle, int peer, const Run& columns, const Run& rows, std::int64_t lld);
  void add_block(int peer, std::int64_t offset, std::int64_t columns, std::int64_t rows, std::int64_t lld);

  std::deque<std::array<std::int64_t, 4>> numbers_;  // counts and strides
  std::vector<dr_block> blocks_;
};

}  // namespace dace_redist::scalapack
