// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How the indices of a tensor that is multiplied by a Khatri-Rao product are split.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "contraction/einsum.hpp"
#include "contraction/matrix.hpp"

namespace dace_redist {

/// The indices of the tensor: those of the panel, those of the rows of a block, and those that loop around it.
struct KhatriRaoPlan {
  /// An index of the tensor.
  struct Axis {
    Index extent, tensor_stride, result_stride;
    std::size_t factor;
    bool kept;
  };

  static constexpr Index panel_bytes = Index{1} << 18;    ///< of the panel: it stays in the second-level cache
  static constexpr Index product_bytes = Index{1} << 16;  ///< of a block times the panel

  std::vector<Axis> axes;           ///< outermost first
  std::vector<std::size_t> panel;   ///< positions in axes
  Index panel_chunk = 1;            ///< of the panel's outermost axis, in the panel at a time
  Index depth = 1;                  ///< rows of the panel
  std::vector<std::size_t> looped;  ///< positions in axes of the loops
  Dimensions loops;                 ///< [looped], A: the tensor, C: the result
  std::vector<Index> tiles;         ///< [looped]
  std::vector<std::size_t> rows;    ///< positions in loops of the rows of a block
  Index block_rows = 1, row_stride = 1, depth_stride = 1;
  bool usable = false;  ///< whether the tensor lies so that its blocks are matrices

  KhatriRaoPlan() = default;

  /// \param operands  For which find_khatri_rao_tensor() found `tensor`; no extent 0.
  /// \param row_bytes  Bytes of a row of the panel.
  KhatriRaoPlan(const std::vector<Layout>& operands, std::size_t tensor, const Layout& result, Index row_bytes) {
    set_axes(operands, tensor, result);
    usable = choose_groups(row_bytes);
  }

 private:
  void set_axes(const std::vector<Layout>& operands, std::size_t tensor, const Layout& result) {
    const Layout& x = operands[tensor];
    for (std::size_t d = 0; d < x.indices.size(); ++d) {
      Axis axis{x.extents[d], x.strides[d], 0, tensor, result.has(x.indices[d])};
      if (axis.kept) axis.result_stride = result.strides[result.position(x.indices[d])];
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (i != tensor && operands[i].has(x.indices[d])) axis.factor = i;
      axes.push_back(axis);
    }
    std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
      const bool single_a = a.extent == 1, single_b = b.extent == 1;
      return single_a != single_b ? single_a : !single_a && a.tensor_stride > b.tensor_stride;
    });
  }

  bool adjoin(std::size_t outer, std::size_t inner) const {
    return axes[outer].tensor_stride == axes[inner].tensor_stride * axes[inner].extent;
  }

  /// Splits the axes into those of the panel, those of the rows of a block, and those that loop.
  bool choose_groups(Index row_bytes) {
    const std::size_t last = axes.size() - 1;
    if (axes[last].extent > 1 && axes[last].tensor_stride != 1) return false;
    for (const Axis& axis : axes)
      if (axis.extent > 1 && axis.tensor_stride <= 0) return false;
    std::size_t innermost = last;
    while (axes[innermost].kept) --innermost;
    const Index most_deep = std::max<Index>(16, panel_bytes / (row_bytes));
    depth = axes[innermost].extent;
    panel.push_back(innermost);
    for (std::size_t d = innermost; d-- > 1 && !axes[d].kept && adjoin(d, d + 1);) {  // axis 0 is left for rows
      if (depth * axes[d].extent > most_deep) break;
      depth *= axes[d].extent;
      panel.insert(panel.begin(), d);
    }
    panel_chunk = panel.size() == 1 ? std::min(depth, most_deep) : axes[panel.front()].extent;
    if (panel.size() == 1) depth = panel_chunk;
    return choose_tiles(innermost == last ? panel.front() : last + 1, row_bytes);
  }

  /// \param end  After the innermost axis of the rows.
  bool choose_tiles(std::size_t end, Index row_bytes) {
    const Index most_rows = std::max<Index>(16, product_bytes / (row_bytes));
    const bool transposed = end == axes.size();
    std::vector<Index> tile_of(axes.size(), 1);
    block_rows = 1;
    for (std::size_t d = end; d-- > 0;) {
      const bool fits = d + 1 == end || adjoin(d, d + 1);
      if (!fits || (transposed && !axes[d].kept)) break;
      rows.insert(rows.begin(), d);
      const Index chunk = std::max<Index>(1, most_rows / block_rows);
      const Index pieces = (axes[d].extent + chunk - 1) / chunk;
      tile_of[d] = (axes[d].extent + pieces - 1) / pieces;
      block_rows *= tile_of[d];
      if (pieces > 1) break;
    }
    row_stride = axes[rows.back()].tensor_stride;
    depth_stride = axes[panel.back()].tensor_stride;
    for (std::size_t d = 0; d < axes.size(); ++d) {
      if (std::find(panel.begin(), panel.end(), d) != panel.end()) continue;
      looped.push_back(d);
      loops.push_back({axes[d].extent, {axes[d].tensor_stride, 0, axes[d].result_stride}, 5});
      tiles.push_back(tile_of[d]);
    }
    for (std::size_t& row : rows)
      row = static_cast<std::size_t>(std::find(looped.begin(), looped.end(), row) - looped.begin());
    return is_matrix(block_rows, depth, row_stride, depth_stride);
  }
};

}  // namespace dace_redist
