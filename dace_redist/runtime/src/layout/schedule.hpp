// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Turns two distributions into the messages of one rank. Needs no MPI.
/// Start reading at: make_schedule.

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "core/export.hpp"
#include "layout/distribution.hpp"
#include "layout/index_map.hpp"
#include "layout/message_blocks.hpp"
#include "layout/replica_policy.hpp"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// Layouts of local arrays, by rank; arrays of other ranks are in C order.
using Layouts = std::map<Index, LocalLayout>;

/// All elements that one rank sends to, or receives from, another. Both ranks hold the blocks, and the elements in each
/// block, in one order: a packed message is the blocks one after another, each in row-major order of its counts.
struct Message {
  Index peer = 0;
  Index count = 0;                   // elements
  std::vector<StridedBlock> blocks;  // not merged: their counts are equal on both sides
  Index turn = 0;                    // order in which the receiver reduces, see ReplicaPolicy
};

/// The messages of one rank, by ascending peer, and its self copy.
struct RankSchedule {
  /// True if elements move out of the rank's source.
  bool reads_source() const { return self.count > 0 || !sends.empty(); }
  /// True if elements move into the rank's target.
  bool writes_target() const { return self.count > 0 || !receives.empty(); }

  std::vector<Message> sends, receives;
  Message self;
};

/// C-order strides of a shape, in elements.
inline std::vector<Index> c_strides(const std::vector<Index>& shape) {
  std::vector<Index> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<Index>(shape[i], 1);
  return strides;
}

/// The messages of one rank. Cost: the sum over dimensions of the blocks met there, plus the messages of this rank;
/// independent of the number of ranks and, but for tiles, of elements.
///
/// \param map  the elements that move, and their indices in the target.
/// \param with_blocks  false: only peers and counts.
/// \param source_layouts, target_layouts  of the local arrays of this rank and of its peers.
/// \param policy  the replicas that send and receive.
DR_API RankSchedule make_schedule(const Distribution& source, const Distribution& target, const IndexMap& map,
                                  Index rank, bool with_blocks = true, const Layouts& source_layouts = {},
                                  const Layouts& target_layouts = {}, const ReplicaPolicy& policy = {});

}  // namespace dace_redist
