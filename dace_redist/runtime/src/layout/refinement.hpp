// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages of which sender and receiver describe one side each: their blocks are cut until they are equal.
/// Start reading at: refine.

#include <vector>

#include "dace_redist_types.h"
#include "layout/block_list.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// Elements of one array, in row-major order of the loops.
struct SideBlock {
  struct Loop {
    Index count, stride;
  };
  Index offset = 0;         ///< of the first element, in elements; may be negative
  std::vector<Loop> loops;  ///< outermost first; none: one element

  Index count() const;
};

/// The blocks of a message, equal on both sides, from the elements that its sender and its receiver list, which are as
/// many. Elements correspond by their places in the lists; the order of the result is another one, which depends on the
/// arguments only.
///
/// Of two blocks with as many elements one is the other one reshaped, see shared_elements(). Cost: that of the result.
///
/// \throws Error if a block needs more than max_block_dims loops.
DR_API BlockList refine(const std::vector<SideBlock>& source, const std::vector<SideBlock>& target);

}  // namespace dace_redist
