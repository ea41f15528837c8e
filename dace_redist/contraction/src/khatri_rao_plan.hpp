// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Splits the indices of a tensor that is multiplied by a Khatri-Rao product, and places the buffers.

#include <cstddef>
#include <vector>

#include "einsum.hpp"
#include "executor.hpp"
#include "loops.hpp"

namespace dace_redist {

/// The indices of the tensor: those of the panel, those of the rows of a block, and those that loop around it. The
/// outermost one is a loop.
struct KhatriRaoPlan {
  /// An index of the tensor. A: the tensor, C: the result.
  struct Axis : Dimension {
    char index = 0;
    std::size_t factor = 0;   ///< operand with its matrix; the tensor itself: the index is kept
    Index factor_stride = 0;  ///< between rows of the matrix
    bool kept = true, in_panel = false;
  };

  std::size_t tensor;              ///< position among the operands
  Index rank = 1, columns = 1;     ///< extent of the common index; columns of the panel, padded to whole vectors
  std::vector<Axis> axes;          ///< outermost first; tiles: those of the loops, all of an axis of the panel
  std::vector<std::size_t> panel;  ///< positions in axes
  Index panel_chunk = 1;           ///< of the panel's outermost axis, in the panel at a time
  Index depth = 1;                 ///< rows of the panel
  std::vector<std::size_t> rows;   ///< positions in axes of the rows of a block
  Index block_rows = 1, row_stride = 1, depth_stride = 1;
  bool usable = false;  ///< whether the tensor lies so that its blocks are matrices
  int threads = 1;

  LoopNest result_nest;                                 ///< of the result alone
  Index result_count = 1;                               ///< elements of the result
  Index own_at = 0, own_count = 0;                      ///< in the scratch: buffers of the threads, after the panel
  Index weights_at = 0, product_at = 0, result_at = 0;  ///< in the buffers of a thread
  Index scratch_count = 0;                              ///< elements of all buffers

  /// \param operands  For which find_khatri_rao_tensor() found `tensor`; no extent 0; factors with contiguous rows.
  /// \param common  The index that all factors have.
  KhatriRaoPlan(const std::vector<Layout>& operands, std::size_t tensor, char common, const Executor& executor);

  /// Chooses the buffers. \param result  With contiguous rows, and contiguous as a whole if threads > 1.
  void set_result(const Layout& result, const Executor& executor);

 private:
  void set_axes(const std::vector<Layout>& operands);
  bool choose_groups(Index row_bytes);
  bool choose_tiles(std::size_t end, Index row_bytes);
};

}  // namespace dace_redist
