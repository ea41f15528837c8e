// SPDX-License-Identifier: BSD-3-Clause
#include "triangle.hpp"

#include <algorithm>

namespace dace_redist::scalapack {
namespace {

/// The runs that a part has in common with a part of the other side, ascending.
std::vector<Run> shared_runs(const Axis& own, std::int64_t part, const Axis& other, std::int64_t other_part,
                             std::int64_t extent) {
  std::vector<Run> runs;
  for (std::int64_t begin = 0, end; begin < extent; begin = end) {
    const std::int64_t block = (own.offset + begin) / own.block, there = (other.offset + begin) / other.block;
    end = std::min({extent, (block + 1) * own.block - own.offset, (there + 1) * other.block - other.offset});
    if (block % own.parts == part && there % other.parts == other_part)
      runs.push_back({begin, end, block / own.parts * own.block + (own.offset + begin) % own.block});
  }
  return runs;
}

}  // namespace

Triangle::Rows Triangle::rows(std::int64_t column) const {
  const std::int64_t below = std::max(m - n, 0), right = std::max(n - m, 0);
  if (upper) return {0, std::min<std::int64_t>(m, below + column + !without_diagonal)};
  return {std::clamp<std::int64_t>(column - right + without_diagonal, 0, m), m};
}

void TriangleBlocks::add(const Triangle& triangle, int peer, const Run& columns, const Run& rows, std::int64_t lld) {
  const auto clipped = [&](std::int64_t column) {
    const Triangle::Rows all = triangle.rows(column);
    return Triangle::Rows{std::max(all.begin, rows.begin), std::min(all.end, rows.end)};
  };
  const Triangle::Rows first = clipped(columns.begin), last = clipped(columns.end - 1);
  const std::int64_t size = rows.end - rows.begin;
  if (first.end - first.begin == size && last.end - last.begin == size)
    return add_block(peer, columns.local * lld + rows.local, columns.end - columns.begin, size, lld);
  for (std::int64_t column = columns.begin; column < columns.end; ++column)
    if (const Triangle::Rows some = clipped(column); some.begin < some.end)
      add_block(peer, (columns.local + column - columns.begin) * lld + rows.local + some.begin - rows.begin, 1,
                some.end - some.begin, lld);
}

void TriangleBlocks::add_block(int peer, std::int64_t offset, std::int64_t columns, std::int64_t rows,
                               std::int64_t lld) {
  const auto& numbers = numbers_.emplace_back(std::array<std::int64_t, 4>{columns, rows, lld, 1});
  blocks_.push_back({peer, 2, offset, numbers.data(), numbers.data() + 2});
}

TriangleBlocks::TriangleBlocks(const Triangle& triangle, const Part& own, const Part& other) {
  if (own.column < 0) return;
  std::vector<std::vector<Run>> rows;
  for (std::int64_t row = 0; row < other.rows.parts; ++row)
    rows.push_back(shared_runs(own.rows, own.row, other.rows, row, triangle.m));
  std::size_t position = 0;
  for (std::int64_t column = 0; column < other.columns.parts; ++column) {
    const std::vector<Run> columns = shared_runs(own.columns, own.column, other.columns, column, triangle.n);
    for (const std::vector<Run>& peer_rows : rows) {
      const int peer = static_cast<int>(other.ranks[position++]);
      for (const Run& across : columns)
        for (const Run& down : peer_rows) add(triangle, peer, across, down, own.lld);
    }
  }
}

}  // namespace dace_redist::scalapack
