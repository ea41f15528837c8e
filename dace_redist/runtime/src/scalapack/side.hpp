// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The matrix of a call: its description, also on processes outside of its grid, and its local array.

#include <cstdint>
#include <vector>

#include "scalapack/plans.hpp"
#include "scalapack/processes.hpp"

namespace dace_redist::scalapack {

/// A submatrix as programs pass it; rows and columns from 0 on.
struct Submatrix {
  char* data;
  int row, column;
  const int* descriptor;
};

/// Rows or columns of a submatrix, over the grid's rows or columns. The matrix begins with the block that holds the
/// first index of the submatrix.
struct Axis {
  std::int64_t parts, block;
  std::int64_t offset;  ///< of the submatrix
  std::int64_t first;   ///< part that owns the first block
  std::int64_t skip;    ///< indices of this process before
};

/// A side of a redistribution.
class Side {
 public:
  Side(const Submatrix& matrix, const Processes& processes);

  /// Whether the grid has all processes.
  bool has_all_processes() const { return has_all_; }
  /// Learns from the other processes what those outside of a grid do not know. Collective.
  static void exchange(Side& source, Side& target, MPI_Comm comm);

  /// Whether grid and submatrix of `rows` x `columns` make sense. Equal on all processes but for the leading dimension.
  bool is_valid(int rows, int columns) const;
  /// Has ScaLAPACK check the same, which ends the process where it finds an error. \return false if it has no such
  /// function.
  bool check(int rows, int columns) const;

  /// Axes of a valid submatrix, of its columns and of its rows: local arrays in C order hold it transposed.
  std::vector<Axis> axes(int rows, int columns) const;
  /// [parts of columns * parts of rows] the process of each position of the grid, beginning with the first block.
  dr::Extents ranks(const std::vector<Axis>& axes) const;
  std::int64_t lld() const { return descriptor_[8]; }
  char* data(const std::vector<Axis>& axes, std::int64_t element_bytes) const;

 private:
  enum Fact {
    grid_rows,
    grid_columns,
    row_count,
    column_count,
    row_block,
    column_block,
    first_row,
    first_column,
    row_offset,
    column_offset,
    fact_count
  };
  std::int64_t min_lld() const;

  char* data_;
  const int* descriptor_;
  Position position_;
  bool has_all_ = false;
  std::vector<int> facts_;  // then the process of each position of the grid, row-major
};

}  // namespace dace_redist::scalapack
