// SPDX-License-Identifier: BSD-3-Clause
#include "side.hpp"

#include <algorithm>
#include <climits>

#include "functions.hpp"

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

Side::Side(const Submatrix& matrix, int context, const Grid& all)
    : data_(matrix.data),
      descriptor_(matrix.descriptor),
      all_(all),
      grid_(matrix.descriptor[1] == context ? &all : grid_of(matrix.descriptor[1])),
      processes_(static_cast<std::size_t>(all.rows * all.columns), unknown) {
  facts_.fill(unknown);
  if (!grid_) return;
  facts_[grid_rows] = grid_->rows;
  facts_[grid_columns] = grid_->columns;
  std::copy_n(descriptor_ + 2, 6, facts_.begin() + row_count);
  facts_[row_offset] = matrix.row;
  facts_[column_offset] = matrix.column;
  const std::unordered_map<int, int>& positions = all.positions;
  auto place = processes_.begin();
  for (const int world_rank : grid_->world_ranks) {
    const auto found = positions.find(world_rank);
    if (found == positions.end())
      facts_[grid_rows] = 0;  // not valid
    else if (place != processes_.end())
      *place++ = found->second;
  }
}

void Side::exchange(Side& source, Side& target, MPI_Comm comm) {
  std::vector<int> all;
  const auto for_each = [&](const auto& act) {
    for (Side* const side : {&source, &target}) {
      act(side->facts_);
      act(side->processes_);
    }
  };
  for_each([&](const auto& numbers) { all.insert(all.end(), numbers.begin(), numbers.end()); });
  MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_INT, MPI_MIN, comm);
  auto next = all.begin();
  for_each([&](auto& numbers) {
    std::copy_n(next, numbers.size(), numbers.begin());
    next += static_cast<std::ptrdiff_t>(numbers.size());
  });
}

bool Side::is_valid(int rows, int columns) const {
  const auto& f = facts_;
  const std::int64_t size = std::int64_t{f[grid_rows]} * f[grid_columns];
  return std::find(f.begin(), f.end(), unknown) == f.end() && size > 0 &&
         size <= static_cast<std::int64_t>(processes_.size()) &&
         std::find(processes_.begin(), processes_.begin() + size, unknown) == processes_.begin() + size &&
         f[row_block] > 0 && f[column_block] > 0 && f[first_row] >= 0 && f[first_row] < f[grid_rows] &&
         f[first_column] >= 0 && f[first_column] < f[grid_columns] && f[row_offset] >= 0 && f[column_offset] >= 0 &&
         rows > 0 && columns > 0 && rows <= f[row_count] - f[row_offset] &&
         columns <= f[column_count] - f[column_offset];
}

bool Side::check(int rows, int columns) const {
  using ParamCheck = void(int*, int, int, int, int, int, int, int);
  static const Function<ParamCheck> paramcheck{"paramcheck"};
  if (!paramcheck.find()) return false;
  if (std::find(facts_.begin(), facts_.end(), unknown) != facts_.end()) return true;
  int descriptor[9] = {1, descriptor_[1]};
  std::copy_n(facts_.begin() + row_count, 6, descriptor + 2);
  descriptor[8] = descriptor_[8];
  if (facts_[row_block] > 0 && facts_[column_block] > 0 && facts_[grid_rows] > 0)
    paramcheck.get()(descriptor, facts_[row_offset], facts_[column_offset], rows, columns, facts_[grid_rows],
                     facts_[grid_columns], 0);
  return true;
}

bool Side::has_valid_lld() const {
  const auto extent = [&](Fact parts_fact, Fact block_fact, Fact count, Fact first, std::int64_t position) {
    const std::int64_t parts = facts_[parts_fact], block = facts_[block_fact], period = parts * block;
    const std::int64_t part = (position - facts_[first] + parts) % parts, rest = facts_[count] % period;
    return facts_[count] / period * block + std::clamp<std::int64_t>(rest - part * block, 0, block);
  };
  const bool has_columns = extent(grid_columns, column_block, column_count, first_column, grid_->column) > 0;
  const std::int64_t rows = extent(grid_rows, row_block, row_count, first_row, grid_->row);
  return lld() >= (has_columns ? std::max<std::int64_t>(1, rows) : 1);
}

Part Side::part(int rows, int columns, std::int64_t element_bytes) const {
  const auto& f = facts_;
  const int own_column = grid_ ? grid_->column : -1, own_row = grid_ ? grid_->row : -1;
  Part part{axis_of(f[grid_columns], f[column_block], f[first_column], f[column_offset], columns, own_column),
            axis_of(f[grid_rows], f[row_block], f[first_row], f[row_offset], rows, own_row)};
  const auto place = [](const Axis& axis, std::int64_t index) { return (axis.first + index) % axis.parts; };
  for (std::int64_t column = 0; column < part.columns.parts; ++column)
    for (std::int64_t row = 0; row < part.rows.parts; ++row)
      part.ranks.push_back(processes_[static_cast<std::size_t>(place(part.rows, row) * part.columns.parts +
                                                               place(part.columns, column))]);
  if (!grid_) return part;
  part.column = (own_column - part.columns.first + part.columns.parts) % part.columns.parts;
  part.row = (own_row - part.rows.first + part.rows.parts) % part.rows.parts;
  part.lld = lld();
  part.data = data_ + (part.columns.skip * lld() + part.rows.skip) * element_bytes;
  return part;
}

}  // namespace dace_redist::scalapack
