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
  const char* counted = "elements";  ///< what blocks count, in words
};

/// The messages of a tensor. Offsets are from the first element of a side that moves.
struct GivenMessages {
  RankSchedule schedule{};
  MessageSide source{}, target{};  ///< without blocks
};

/// The sides of a rank and of its peers, which may not fit each other.
class ExchangedSides {
 public:
  /// Tells every rank this one's sides of their messages. Collective.
  /// \param describe  called once on each rank; what it throws on one rank is an error on all.
  ExchangedSides(Context& context, const std::function<MessageSides()>& describe);

  /// \throws Error if a rank sends another number of elements than its peer receives, or receives any twice.
  GivenMessages match() const;

 private:
  /// Descriptions for or from each rank, one after another.
  struct WordsOfRanks {
    std::vector<int> counts, begins;
    std::vector<Index> words;
  };

  int rank_;
  MessageSides mine_;
  WordsOfRanks theirs_;
};

}  // namespace dace_redist
