// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages of several tensors, and how they are cut into pieces. Start reading at: PeerMessage.

#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "copy/element_operation.hpp"
#include "copy/reduce_blocks.hpp"
#include "layout/schedule.hpp"

namespace dace_redist {

/// All that one rank sends to another. Both ranks hold the blocks, and the elements of each block, in the same order.
/// Packed, blocks follow each other; the first block of a tensor begins at a multiple of element_alignment.
struct PeerMessage {
  int peer = 0;
  Index nbytes = 0;
  BlockList blocks;
  Index step = 0;     ///< place in the order of messages, equal on both sides
  Index summand = 0;  ///< of partial results: place in the order of the reduction, see ReplicaPolicy
  bool crosses_nodes = false;
};

/// The messages of one rank.
struct Messages {
  std::vector<PeerMessage> sends, receives;  ///< by step
  PeerMessage self;                          ///< the self copy
};

/// Bytes of messages.
inline Index bytes_of(const std::vector<PeerMessage>& messages) {
  return std::accumulate(messages.begin(), messages.end(), Index{0},
                         [](Index sum, const PeerMessage& message) { return sum + message.nbytes; });
}

/// Computation with elements on their way.
struct TensorSteps {
  ElementSteps steps;
  ReductionSteps reduction;  ///< of partial results
};

/// What the transports know of a tensor.
struct Tensor : TensorSteps {
  TensorSteps between_nodes;   ///< of messages that cross nodes
  ElementOperation operation;  ///< the whole of it
  bool reduces = false;        ///< whether its messages are partial results
  LocalLayout source, target;

  const TensorSteps& steps_of(const PeerMessage& message) const {
    return message.crosses_nodes ? between_nodes : *this;
  }
  /// Bytes of an element in a message.
  Index message_bytes(const PeerMessage& message) const { return steps_of(message).steps.message_bytes(); }
  /// The step from a packed message to the target array, and of elements that stay on their rank.
  ElementStep unpack_step(const PeerMessage& message) const;
  ElementStep direct_step(const PeerMessage& message) const;
};

using Tensors = std::vector<std::unique_ptr<Tensor>>;

/// Whether messages are partial results, which are reduced in the order of steps.
bool are_partial(const Tensors& tensors);

/// Base addresses of this rank's arrays.
struct Arrays {
  const char* const* sources = nullptr;  ///< [tensors]
  char* const* targets = nullptr;        ///< [tensors]
};

/// Blocks of a message, all of one tensor, that are taken together: one, or several tiny ones.
struct BlockGroup {
  BlockList::Iterator first;
  std::size_t count;
  int tensor;
  Index elements, element_bytes;  ///< in a message
};

/// Walks through a message part by part, the same way for sender and receiver. A part is a group of blocks or, of a
/// large block, as many rows as fit.
class MessageCutter {
 public:
  /// \param message     must outlive the cutter, but may be moved.
  /// \param part_bytes  the largest part; rows that are longer are cut.
  /// \param max_tiny_bytes  blocks of up to so many bytes form groups; 0: each block is a group.
  MessageCutter(const PeerMessage& message, const Tensors& tensors, Index part_bytes, Index max_tiny_bytes = 0);

  /// Goes to the first part, and may cut parts of another size; groups stay as they are.
  void restart(Index part_bytes);
  bool done() const { return group_ == groups_.size(); }

  /// The next part; of a group of several blocks, the first one.
  const StridedBlock& part() const { return parts_ == 1 ? block_ : part_; }
  int tensor() const { return groups_[group_].tensor; }
  /// Bytes of an element of the next part, in a message.
  Index element_bytes() const { return groups_[group_].element_bytes; }
  const std::vector<BlockGroup>& groups() const { return groups_; }
  std::size_t group() const { return group_; }
  /// Whether the part is the whole group.
  bool whole_group() const { return parts_ == 1; }
  bool several_blocks() const { return groups_[group_].count > 1; }
  /// Whether a cutter of an equally shaped message is at the same part.
  bool same_position(const MessageCutter& other) const { return group_ == other.group_ && index_ == other.index_; }

  void advance();

  /// Takes parts up to a number of bytes, but at least one; calls `visit(displacement)` before each, with its place in
  /// a packed message in bytes. \return the bytes of the packed parts.
  template <class Visit>
  Index take(Index max_bytes, Visit&& visit) {
    Index taken = 0, next = 0;
    do {
      const int tensor = this->tensor();
      visit(next);
      taken = next + part_bytes();
      advance();
      next = done() || this->tensor() == tensor ? taken : ceil_div(taken, element_alignment) * element_alignment;
    } while (!done() && next + part_bytes() <= max_bytes);
    return taken;
  }

 private:
  Index part_bytes() const { return count_ * element_bytes(); }
  void open_group();
  void set_part();

  Index max_part_bytes_ = 1;
  std::vector<BlockGroup> groups_;
  std::size_t group_ = 0;        // group at hand
  std::size_t cut_ = 0;          // dimension that is cut
  Index inner_ = 1;              // elements of a row of it
  Index rows_ = 1, steps_ = 1;   // rows per part, parts per index of the dimensions before
  Index index_ = 0, parts_ = 1;  // part at hand, and their number
  Index count_ = 0;              // elements of that part
  StridedBlock block_, part_;    // the first one of the group at hand, and its part at hand
};

/// The block with its target side replaced by a packed message, from `displacement` elements on.
StridedBlock to_packed(StridedBlock block, Index displacement);

/// The block with source and target side exchanged.
StridedBlock reversed(StridedBlock block);

/// The block with its source side replaced by a packed message, from `displacement` elements on.
StridedBlock from_packed(StridedBlock block, Index displacement);

/// Bytes of a message.
Index packed_bytes(const PeerMessage& message, const Tensors& tensors);

}  // namespace dace_redist
