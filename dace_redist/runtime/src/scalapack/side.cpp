// SPDX-License-Identifier: BSD-3-Clause
#include "scalapack/side.hpp"

#include <algorithm>
#include <climits>

#include "scalapack/functions.hpp"

namespace dace_redist::scalapack {
namespace {

constexpr int unknown = INT_MAX;

/// \param mine  part of this process; -1: none.
Axis axis_of(std::int64_t parts, std::int64_t block, std::int64_t first, std::int64_t start, std::int64_t extent,
             std::int64_t mine) {
  if (parts == 1) return {1, extent, 0, 0, start};
  const std::int64_t number = start / block, shifted = (mine - first + parts) % parts;
  Axis axis{parts, block, start % block, (first + number) % parts,
            number / parts * block + (shifted < number % parts ? block : 0)};
  if (axis.offset + extent > block) return axis;
  axis.skip += axis.offset;  // a single block
  axis.offset = 0;
  axis.block = extent;
  return axis;
}

}  // namespace

Side::Side(const Submatrix& matrix, int context, const Position& own)
    : data_(matrix.data),
      descriptor_(matrix.descriptor),
      position_(matrix.descriptor[1] == context ? own : position_in(matrix.descriptor[1])),
      size_(own.grid->rows * own.grid->columns),
      facts_(static_cast<std::size_t>(fact_count + 2 * size_), unknown) {
  if (!position_.grid) return;
  const Grid& grid = *position_.grid;
  const std::unordered_map<int, int>& ranks = processes_of(*own.grid).ranks;
  facts_[grid_rows] = grid.rows;
  facts_[grid_columns] = grid.columns;
  std::copy_n(descriptor_ + 2, 6, facts_.begin() + row_count);
  facts_[row_offset] = matrix.row;
  facts_[column_offset] = matrix.column;
  facts_[static_cast<std::size_t>(fact_count + size_ + own.row * own.grid->columns + own.column)] = descriptor_[8];
  int position = 0;
  for (const int world_rank : grid.world_ranks) {
    const auto found = ranks.find(world_rank);
    if (found == ranks.end())
      facts_[grid_rows] = 0;  // not valid
    else if (position < size_)
      facts_[static_cast<std::size_t>(fact_count + position++)] = found->second;
  }
  has_all_ = position == size_ && facts_[grid_rows] > 0;
}

void Side::exchange(Side& source, Side& target, MPI_Comm comm) {
  std::vector<int> facts = source.facts_;
  facts.insert(facts.end(), target.facts_.begin(), target.facts_.end());
  MPI_Allreduce(MPI_IN_PLACE, facts.data(), static_cast<int>(facts.size()), MPI_INT, MPI_MIN, comm);
  const auto half = facts.begin() + static_cast<std::ptrdiff_t>(source.facts_.size());
  source.facts_.assign(facts.begin(), half);
  target.facts_.assign(half, facts.end());
}

std::uint64_t Side::kind(std::uint64_t other) const {
  for (auto fact = facts_.begin(); fact != facts_.end() - size_; ++fact)
    other = (other ^ static_cast<std::uint32_t>(*fact)) * 1099511628211ull;
  return other;
}

bool Side::is_valid(int rows, int columns) const {
  const auto& f = facts_;
  const auto positions = facts_.begin() + fact_count;
  const std::int64_t size = std::int64_t{f[grid_rows]} * f[grid_columns];
  return std::find(f.begin(), positions, unknown) == positions && size > 0 && size <= size_ &&
         std::find(positions, positions + size, unknown) == positions + size && f[row_block] > 0 &&
         f[column_block] > 0 && f[first_row] >= 0 && f[first_row] < f[grid_rows] && f[first_column] >= 0 &&
         f[first_column] < f[grid_columns] && f[row_offset] >= 0 && f[column_offset] >= 0 && rows > 0 && columns > 0 &&
         rows <= f[row_count] - f[row_offset] && columns <= f[column_count] - f[column_offset];
}

bool Side::check(int rows, int columns) const {
  using ParamCheck = void(int*, int, int, int, int, int, int, int);
  static auto* const paramcheck = reinterpret_cast<ParamCheck*>(find_function("paramcheck"));
  if (!paramcheck) return false;
  if (std::find(facts_.begin(), facts_.begin() + fact_count, unknown) != facts_.begin() + fact_count) return true;
  int descriptor[9] = {1, descriptor_[1]};
  std::copy_n(facts_.begin() + row_count, 6, descriptor + 2);
  descriptor[8] = descriptor_[8];
  if (facts_[row_block] > 0 && facts_[column_block] > 0 && facts_[grid_rows] > 0)
    paramcheck(descriptor, facts_[row_offset], facts_[column_offset], rows, columns, facts_[grid_rows],
               facts_[grid_columns], 0);
  return true;
}

bool Side::has_valid_lld() const {
  const auto extent = [&](Fact parts_fact, Fact block_fact, Fact count, Fact first, std::int64_t position) {
    const std::int64_t parts = facts_[parts_fact], block = facts_[block_fact], period = parts * block;
    const std::int64_t part = (position - facts_[first] + parts) % parts, rest = facts_[count] % period;
    return facts_[count] / period * block + std::clamp<std::int64_t>(rest - part * block, 0, block);
  };
  const bool has_columns = extent(grid_columns, column_block, column_count, first_column, position_.column) > 0;
  const std::int64_t rows = extent(grid_rows, row_block, row_count, first_row, position_.row);
  return lld() >= (has_columns ? std::max<std::int64_t>(1, rows) : 1);
}

Part Side::part(int rows, int columns, std::int64_t element_bytes) const {
  const auto& f = facts_;
  Part part{axis_of(f[grid_columns], f[column_block], f[first_column], f[column_offset], columns, position_.column),
            axis_of(f[grid_rows], f[row_block], f[first_row], f[row_offset], rows, position_.row)};
  const auto place = [](const Axis& axis, std::int64_t index) { return (axis.first + index) % axis.parts; };
  for (std::int64_t column = 0; column < part.columns.parts; ++column)
    for (std::int64_t row = 0; row < part.rows.parts; ++row)
      part.ranks.push_back(f[static_cast<std::size_t>(fact_count + place(part.rows, row) * part.columns.parts +
                                                      place(part.columns, column))]);
  if (!position_.grid) return part;
  part.column = (position_.column - part.columns.first + part.columns.parts) % part.columns.parts;
  part.row = (position_.row - part.rows.first + part.rows.parts) % part.rows.parts;
  part.lld = lld();
  part.data = data_ + (part.columns.skip * lld() + part.rows.skip) * element_bytes;
  return part;
}

}  // namespace dace_redist::scalapack
