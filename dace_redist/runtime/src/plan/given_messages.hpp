// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages that a program gives, in place of those that distributions determine: each rank describes its own side.
/// Start reading at: ExchangedSides.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "layout/refinement.hpp"
#include "layout/schedule.hpp"
#include "plan/packed_side.hpp"
#include "transport/context.hpp"

namespace dace_redist {

/// What a rank sends, or what it receives.
struct MessageSide {
  std::map<int, std::vector<SideBlock>> blocks{};  ///< by peer, in the order of the message
  Index unit_bytes = 1;                            ///< bytes of what `blocks` counts, in the array
  std::shared_ptr<PackedSide> packed = nullptr;    ///< moves in place of the array; null: the array moves
  Index start = 0;  ///< bytes from the array's address to the first element that moves, set by
                    ///< ExchangedSides unless it is packed
};

/// Both sides of a rank.
struct MessageSides {
  MessageSide source, target;
  /// Elements have as many of what blocks count as divides this and all numbers; 1: blocks count elements. Else the
  /// innermost loop of each block has stride 1.
  Index max_element = 1;
};

/// The messages of a tensor. Offsets are from the first element of a side that moves.
struct GivenMessages {
  RankSchedule schedule{};
  MessageSide source{}, target{};  ///< without blocks
  Index element = 1;               ///< how many of what blocks counted
};

/// The sides of a rank and of its peers, which may not fit each other.
class ExchangedSides {
 public:
  /// Tells every peer this rank's sides of its messages. Collective.
  /// \param describe  called once on each rank; what it throws on one rank is an error on all.
  ExchangedSides(Context& context, const std::function<MessageSides()>& describe);

  /// \throws Error if a rank sends another number of elements than its peer receives, or receives any twice.
  GivenMessages match() const;

 private:
  using Words = std::vector<Index>;
  /// What a rank tells each other one ahead of its blocks.
  struct Header {
    Index words = 0, element = 1;
  };

  void write();
  void exchange(MPI_Comm comm, int tag);
  Message message(int source, int target, const std::vector<SideBlock>& sent, const std::vector<SideBlock>& received,
                  Index element) const;

  int rank_;
  MessageSides mine_;
  std::vector<Header> to_, from_;  // [ranks]
  std::map<int, Words> out_, in_;  // by peer: sides of a message
};

}  // namespace dace_redist
