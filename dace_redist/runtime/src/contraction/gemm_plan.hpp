// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Which part of a contraction of two tensors is one product of matrices, which part loops, and what is copied first.
///
/// Start reading at: choose_gemm_plan().

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "contraction/matrix.hpp"
#include "contraction/tile_walk.hpp"

namespace dace_redist {

/// The dimensions of a matrix product: `C[rows, columns] += A[rows, sums] B[sums, columns]`.
enum MatrixSide : std::size_t { Rows = 0, Columns = 1, Sums = 2 };

inline constexpr std::array<std::array<MatrixSide, 2>, 3> sides_of{{{Rows, Sums}, {Sums, Columns}, {Rows, Columns}}};
inline constexpr std::array<unsigned, 3> holders_of{1u << A | 1u << C, 1u << B | 1u << C, 1u << A | 1u << B};

/// Bytes of one tensor's tile that is copied so that BLAS can read it: the larger, the fewer times a tile is copied.
inline constexpr Index packed_bytes = Index{1} << 21;

/// A product of matrices within loops over tiles.
struct GemmPlan {
  using Group = std::vector<std::size_t>;  ///< positions of dimensions, outermost first

  Dimensions dimensions;         ///< in the order of the loops
  std::vector<Index> tiles;      ///< [dimensions], 1 for those outside of the matrices
  std::array<Group, 3> groups;   ///< by MatrixSide: the dimensions in the matrices
  std::array<bool, 3> packed{};  ///< by Operand: copied to a buffer, of C: from a buffer
  double nanoseconds = std::numeric_limits<double>::infinity();

  Index size(MatrixSide side) const {
    Index product = 1;
    for (const std::size_t d : groups[side]) product *= tiles[d];
    return product;
  }
  Index size(Operand tensor) const { return size(sides_of[tensor][0]) * size(sides_of[tensor][1]); }

  /// Distance in a tensor between neighbours of one side of the matrix.
  Index stride(Operand tensor, MatrixSide side) const {
    return groups[side].empty() ? 0 : dimensions[groups[side].back()].strides[tensor];
  }

  /// Number of tiles in the dimensions of these holders, or of all.
  double tile_count(unsigned holders = 0) const {
    double count = 1;
    for (std::size_t d = 0; d < tiles.size(); ++d)
      if (holders == 0 || dimensions[d].holders == holders)
        count *= static_cast<double>((dimensions[d].extent + tiles[d] - 1) / tiles[d]);
    return count;
  }
};

namespace detail {

/// Whether the dimensions of a group follow each other in a tensor.
inline bool follow(const GemmPlan& plan, MatrixSide side, Operand tensor) {
  const GemmPlan::Group& group = plan.groups[side];
  for (std::size_t i = 0; i + 1 < group.size(); ++i)
    if (!adjoin(plan.dimensions[group[i]], plan.dimensions[group[i + 1]], tensor)) return false;
  return group.empty() || plan.stride(tensor, side) > 0;
}

/// Whether BLAS can use a tensor's tiles where they lie.
inline bool lies_right(const GemmPlan& plan, Operand tensor) {
  const auto [first, second] = sides_of[tensor];
  return follow(plan, first, tensor) && follow(plan, second, tensor) &&
         is_matrix(plan.size(first), plan.size(second), plan.stride(tensor, first), plan.stride(tensor, second));
}

/// Cuts a group, from its outermost dimension on, to at most `target` elements.
inline void cut(GemmPlan& plan, MatrixSide side, Index target) {
  for (const std::size_t d : plan.groups[side]) {
    const Index size = plan.size(side);
    if (size <= target) return;
    plan.tiles[d] = std::max<Index>(1, target / (size / plan.tiles[d]));
  }
}

/// Cuts the tiles so that what is copied fits its buffer.
inline void cut_tiles(GemmPlan& plan, Index most_elements) {
  constexpr Index deep = 256;  // sums of this length keep the arithmetic busy
  for (const MatrixSide side : {Rows, Columns, Sums}) cut(plan, side, blas::longest);
  for (const Operand tensor : {A, B}) {
    if (!plan.packed[tensor] || plan.size(tensor) <= most_elements) continue;
    const MatrixSide other = tensor == A ? Rows : Columns;
    cut(plan, Sums, std::max(deep, most_elements / plan.size(other)));
    cut(plan, other, std::max<Index>(1, most_elements / plan.size(Sums)));
  }
  if (plan.packed[C] && plan.size(C) > most_elements) {
    const MatrixSide longer = plan.size(Rows) > plan.size(Columns) ? Rows : Columns;
    cut(plan, longer, std::max(deep, most_elements / plan.size(longer == Rows ? Columns : Rows)));
    cut(plan, longer == Rows ? Columns : Rows, std::max<Index>(1, most_elements / plan.size(longer)));
  }
}

/// Time of a plan on a present core, in nanoseconds; only compared with that of other plans.
inline double estimated_time(const GemmPlan& plan) {
  constexpr double per_call = 250, per_flop = 0.015, per_element_read = 0.35, per_element_written = 0.5;
  constexpr double per_copy = 300, per_element_copied = 1.0;
  const auto size = [&plan](auto of) { return static_cast<double>(plan.size(of)); };
  const double in_call = per_call + per_flop * 2 * size(Rows) * size(Columns) * size(Sums) +
                         per_element_read * (size(A) + size(B)) + per_element_written * size(C);
  double time = plan.tile_count() * in_call;
  const double batches = plan.tile_count(7);
  for (const Operand tensor : {A, B, C}) {
    if (!plan.packed[tensor]) continue;
    const auto [first, second] = sides_of[tensor];
    double copies = batches * plan.tile_count(holders_of[first]) * plan.tile_count(holders_of[second]);
    const MatrixSide absent = tensor == A ? Columns : Rows;
    if (tensor != C && plan.tile_count(holders_of[Sums]) > 1) copies *= plan.tile_count(holders_of[absent]);
    time += copies * (per_copy + per_element_copied * size(tensor));
  }
  return time;
}

inline void add_option(std::vector<GemmPlan::Group>& options, GemmPlan::Group group) {
  if (std::find(options.begin(), options.end(), group) == options.end()) options.push_back(std::move(group));
}

/// The dimensions that end with `last` and follow each other in a tensor.
inline GemmPlan::Group chain(const Dimensions& dimensions, const GemmPlan::Group& all, std::size_t last,
                             Operand tensor) {
  GemmPlan::Group group{last};
  for (bool grown = true; grown;) {
    grown = false;
    for (const std::size_t d : all) {
      if (std::find(group.begin(), group.end(), d) != group.end()) continue;
      if (!adjoin(dimensions[d], dimensions[group.front()], tensor)) continue;
      group.insert(group.begin(), d);
      grown = true;
    }
  }
  return group;
}

/// What may make up one side of the matrices: each dimension, those that follow each other in a tensor, and all.
inline std::vector<GemmPlan::Group> side_options(const Dimensions& dimensions, MatrixSide side) {
  GemmPlan::Group all;
  for (std::size_t d = 0; d < dimensions.size(); ++d)
    if (dimensions[d].holders == holders_of[side]) all.push_back(d);
  if (all.empty()) return {{}};
  std::vector<GemmPlan::Group> options;
  for (const Operand tensor : {A, B, C}) {
    if (!dimensions[all.front()].in(tensor)) continue;
    for (const std::size_t d : all) {
      add_option(options, {d});
      add_option(options, chain(dimensions, all, d, tensor));
    }
    GemmPlan::Group sorted = all;
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t x, std::size_t y) {
      return dimensions[x].strides[tensor] > dimensions[y].strides[tensor];
    });
    add_option(options, sorted);
  }
  return options;
}

/// Completes a plan whose groups are chosen.
inline void complete(GemmPlan& plan, Index most_elements) {
  plan.tiles.assign(plan.dimensions.size(), 1);
  for (const GemmPlan::Group& group : plan.groups)
    for (const std::size_t d : group) plan.tiles[d] = plan.dimensions[d].extent;
  for (const Operand tensor : {A, B, C}) plan.packed[tensor] = !lies_right(plan, tensor);
  cut_tiles(plan, most_elements);
  plan.nanoseconds = estimated_time(plan);
}

/// Orders the loops by the strides of the largest tensor, so that it is read once, in order; what is accumulated in a
/// buffer is summed up before the next buffer.
inline void order_loops(GemmPlan& plan) {
  std::array<double, 3> elements{1, 1, 1};
  for (const Dimension& dimension : plan.dimensions)
    for (const Operand tensor : {A, B, C})
      if (dimension.in(tensor)) elements[tensor] *= static_cast<double>(dimension.extent);
  const auto largest = static_cast<std::size_t>(std::max_element(elements.begin(), elements.end()) - elements.begin());
  std::vector<std::size_t> order(plan.dimensions.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  const auto step = [&](std::size_t d) { return plan.dimensions[d].strides[largest] * plan.tiles[d]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return step(x) > step(y); });
  const auto outside_sum = [&](std::size_t d) { return plan.dimensions[d].holders != holders_of[Sums]; };
  if (plan.packed[C]) std::stable_partition(order.begin(), order.end(), outside_sum);
  GemmPlan ordered = plan;
  for (std::size_t at = 0; at < order.size(); ++at) {
    ordered.dimensions[at] = plan.dimensions[order[at]];
    ordered.tiles[at] = plan.tiles[order[at]];
    for (std::size_t side = 0; side < 3; ++side)
      for (std::size_t i = 0; i < plan.groups[side].size(); ++i)
        if (plan.groups[side][i] == order[at]) ordered.groups[side][i] = at;
  }
  plan = std::move(ordered);
}

}  // namespace detail

/// The plan with the shortest estimated time.
///
/// \param dimensions  Merged; every one belongs to at least two of the tensors; no extent 0.
/// \param element_bytes  Bytes of an element.
inline GemmPlan choose_gemm_plan(const Dimensions& dimensions, Index element_bytes) {
  GemmPlan best;
  const auto rows = detail::side_options(dimensions, Rows), columns = detail::side_options(dimensions, Columns),
             sums = detail::side_options(dimensions, Sums);
  for (const auto& r : rows)
    for (const auto& c : columns)
      for (const auto& s : sums) {
        GemmPlan plan{dimensions, {}, {r, c, s}};
        detail::complete(plan, packed_bytes / element_bytes);
        if (plan.nanoseconds < best.nanoseconds) best = std::move(plan);
      }
  detail::order_loops(best);
  return best;
}

}  // namespace dace_redist
