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
#include "layout/strided_block.hpp"

namespace dace_redist {

/// Where a rank's local array lies: strides in elements, one per dimension of its local shape; empty: C order.
struct LocalLayout {
  std::vector<Index> strides;
};

/// Local arrays of several ranks by rank; in C order where a rank is not among them.
using Layouts = std::map<Index, LocalLayout>;

/// Everything one rank sends to, or receives from, another. Both ranks hold the blocks, and the elements in each
/// block, in the same order: a packed message is the blocks one after another, each in row-major order of its counts.
struct Message {
  Index peer = 0;
  Index count = 0;                   // elements
  std::vector<StridedBlock> blocks;  // not merged: their counts are equal on both sides
  Index round = 0;                   // its place in the order of messages, equal on both sides; see Plan::round()
  Index turn = 0;                    // its place in the order of a reduction; see Senders
};

/// What one rank does: by ascending peer. `self` never leaves the rank.
struct RankSchedule {
  /// Whether elements move out of the rank's source, or into its target.
  bool reads_source() const { return self.count > 0 || !sends.empty(); }
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

/// Of the replicas of a source cell, which ones send it to a receiver.
struct Senders {
  enum Kind {
    one,    ///< one of them, the receiver itself if it holds the cell
    all,    ///< each of them, reduced in the order of their turns
    turn,   ///< number (turn + position of the target cell) mod replicas: each one in as many turns
    share,  ///< each of them its share of the cell, where source and target are the same distribution
  };
  Kind kind = one;
  Index number = 0;        ///< of the turn
  bool to_shares = false;  ///< of a turn, or all: whether each replica of a target cell receives its share of it only
};

/// The messages of one rank. Cost: the sum over dimensions of the blocks met there, plus the messages of this rank;
/// independent of the number of ranks and, but for tiles, of elements.
///
/// \param map  which elements move, and where to; see IndexMap.
/// \param with_blocks  false: only peers and counts.
/// \param source_layouts, target_layouts  the local arrays; offsets and strides on the side of a peer hold for these.
/// \param senders  which replicas of the source send.
DR_API RankSchedule make_schedule(const Distribution& source, const Distribution& target, const IndexMap& map,
                                  Index rank, bool with_blocks = true, const Layouts& source_layouts = {},
                                  const Layouts& target_layouts = {}, Senders senders = {});

}  // namespace dace_redist
