// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The matrix of a call: its description, also on processes outside of its grid, and its local array.

#include <array>
#include <cstdint>
#include <vector>

#include "plans.hpp"
#include "processes.hpp"

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

/// A valid submatrix, and this process in it. Local arrays in C order hold the transposed matrix.
struct Part {
  Axis columns, rows;
  dr::Extents ranks{};                 ///< [columns.parts * rows.parts] beginning with the first block
  std::int64_t column = -1, row = -1;  ///< of this process, counted from the first block; -1: outside
  std::int64_t lld = 0;
  char* data = nullptr;  ///< the first block of this process
};

/// A side of a redistribution.
class Side {
 public:
  /// \param all  the grid of all processes that call; its context is \p context.
  Side(const Submatrix& matrix, int context, const Grid& all);

  /// Whether the grid has all processes.
  bool has_all_processes() const { return grid_ && grid_->has_processes_of(all_); }
  /// Learns from the other processes what those outside of a grid do not know. Collective.
  static void exchange(Side& source, Side& target, MPI_Comm comm);

  /// Whether grid and submatrix of `rows` x `columns` make sense. Equal on all processes.
  bool is_valid(int rows, int columns) const;
  /// Whether this process of a valid matrix has the leading dimension that p?tran asks for.
  bool has_valid_lld() const;
  /// Has ScaLAPACK check the same, and the leading dimension, which ends the process where it finds an error. \return
  /// false if it has no such function.
  bool check(int rows, int columns) const;

  Part part(int rows, int columns, std::int64_t element_bytes) const;

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
  std::int64_t lld() const { return descriptor_[8]; }

  char* data_;
  const int* descriptor_;
  const Grid& all_;
  const Grid* grid_;
  std::array<int, fact_count> facts_;
  std::vector<int> processes_;  // of each position of the grid, row-major; then unknown ones: [processes]
};

}  // namespace dace_redist::scalapack
