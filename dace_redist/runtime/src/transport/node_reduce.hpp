// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Reduces the partial results that a rank receives from ranks of its node: all that belong to the same elements at
/// once.

#include <vector>

#include "transport/node_copy.hpp"

namespace dace_redist {

/// The partial results of a part of the target: messages of replicas of the source, and the self copy, in the order of
/// the reduction. They are cut in the same way, and reduced piece by piece.
class PartialResults {
 public:
  /// \param channels  at least one, in the order of their summands; must outlive this.
  explicit PartialResults(std::vector<Channel*> channels);

  bool done() const { return first().cutter.done(); }
  Index target_bytes(const NodeTransfer& transfer) const;
  /// Where the next piece lies in the target.
  Index position() const { return first().cutter.part().target_offset; }
  /// Whether the next piece of each partial result can be read.
  bool ready() const;
  void reduce_next(NodeTransfer& transfer);

 private:
  Channel& first() const { return *channels_.front(); }
  void reduce_piece(const NodeTransfer& transfer);
  PartialBlock partial(const NodeTransfer& transfer, const Channel& channel, Index summand, const StridedBlock& block,
                       Index displacement) const;

  std::vector<Channel*> channels_;
  // Scratch:
  std::vector<PartialBlock> blocks_;
  std::vector<BlockList::Iterator> next_;  // [channels]
};

/// Finds the messages that belong to the same elements.
std::vector<PartialResults> find_partial_results(Channel& self, std::vector<Channel>& receives);

/// Reduces the piece that lies first in the target, of the parts whose partial results are all there.
/// \return whether there was one.
bool reduce_next(NodeTransfer& transfer, std::vector<PartialResults>& parts);

}  // namespace dace_redist
