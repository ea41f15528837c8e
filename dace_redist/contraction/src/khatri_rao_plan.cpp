// SPDX-License-Identifier: BSD-3-Clause
#include "khatri_rao_plan.hpp"

#include <algorithm>

#include "executor.hpp"
#include "gemm_plan.hpp"

namespace dace_redist {
namespace {

constexpr Index panel_bytes = Index{1} << 18;    // of the panel: it stays in the second-level cache
constexpr Index product_bytes = Index{1} << 16;  // of a block times the panel
constexpr Index min_rows = 16;

}  // namespace

KhatriRaoPlan::KhatriRaoPlan(const std::vector<Layout>& operands, std::size_t position, char common,
                             const Executor& executor)
    : tensor(position) {
  rank = operands[tensor == 0 ? 1 : 0].extent(common);
  columns = executor.panel_columns(rank);
  set_axes(operands);
  usable = choose_groups(columns * executor.element_nbytes);
  if (usable && executor.has_panel_kernel(columns))  // else BLAS has the threads
    threads = static_cast<int>(std::min<Index>(thread_count(), axes.front().extent));
}

void KhatriRaoPlan::set_axes(const std::vector<Layout>& operands) {
  const Layout& x = operands[tensor];
  for (std::size_t d = 0; d < x.indices.size(); ++d) {
    Axis axis{{x.extents[d], {x.strides[d], 0, 0}, 1u << A | 1u << C}, x.indices[d], tensor};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (i == tensor || !operands[i].has(axis.index)) continue;
      axis.factor = i;
      axis.factor_stride = operands[i].stride(axis.index);
      axis.kept = false;
    }
    axes.push_back(axis);
  }
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
    const bool single_a = a.extent == 1, single_b = b.extent == 1;
    return single_a != single_b ? single_a : !single_a && a.strides[A] > b.strides[A];
  });
}

/// Splits the axes into those of the panel, those of the rows of a block, and those that loop.
bool KhatriRaoPlan::choose_groups(Index row_bytes) {
  const std::size_t last = axes.size() - 1;
  if (axes.size() > max_dimensions || (axes[last].extent > 1 && axes[last].strides[A] != 1)) return false;
  for (const Axis& axis : axes)
    if (axis.extent > 1 && axis.strides[A] <= 0) return false;
  std::size_t innermost = last;
  while (axes[innermost].kept) --innermost;
  const Index max_depth = std::max(min_rows, panel_bytes / row_bytes);
  depth = axes[innermost].extent;
  panel.push_back(innermost);
  for (std::size_t d = innermost;
       d-- > 1 && !axes[d].kept && adjoin(axes[d], axes[d + 1], A);) {  // axis 0 is left for rows
    if (depth * axes[d].extent > max_depth) break;
    depth *= axes[d].extent;
    panel.insert(panel.begin(), d);
  }
  panel_chunk = panel.size() == 1 ? std::min(depth, max_depth) : axes[panel.front()].extent;
  if (panel.size() == 1) depth = panel_chunk;
  for (const std::size_t d : panel) {
    axes[d].in_panel = true;
    axes[d].tile = axes[d].extent;
  }
  return choose_tiles(innermost == last ? panel.front() : last + 1, row_bytes);
}

/// \param end  After the innermost axis of the rows.
bool KhatriRaoPlan::choose_tiles(std::size_t end, Index row_bytes) {
  const Index max_rows = std::max(min_rows, product_bytes / row_bytes);
  const bool transposed = end == axes.size();
  for (std::size_t d = end; d-- > 0;) {
    const bool fits = d + 1 == end || adjoin(axes[d], axes[d + 1], A);
    if (!fits || (transposed && !axes[d].kept)) break;
    rows.insert(rows.begin(), d);
    const Index chunk = std::max<Index>(1, max_rows / block_rows);
    const Index pieces = ceil_div(axes[d].extent, chunk);
    axes[d].tile = ceil_div(axes[d].extent, pieces);
    block_rows *= axes[d].tile;
    if (pieces > 1) break;
  }
  row_stride = axes[rows.back()].strides[A];
  depth_stride = axes[panel.back()].strides[A];
  return matrix_layout(block_rows, depth, row_stride, depth_stride).valid;
}

void KhatriRaoPlan::set_result(const Layout& result, const Executor& executor) {
  for (Axis& axis : axes)
    if (axis.kept) axis.strides[C] = result.stride(axis.index);
  result_nest = LoopNest(dimensions_of({}, {}, result));
  result_count = result.count();
  const auto place = [&](Index& total, Index count) {
    const Index at = total;
    total += aligned_count(count, executor.element_nbytes);
    return at;
  };
  weights_at = place(own_count, block_rows * columns);
  product_at = place(own_count, block_rows * columns);
  if (threads > 1) result_at = place(own_count, result_count);
  place(scratch_count, depth * columns);
  own_at = place(scratch_count, threads * own_count);
}

}  // namespace dace_redist
