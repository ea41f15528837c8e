// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages that a program gives, in place of those that distributions determine: each rank describes its own side.
/// Start reading at: ExchangedSides.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "layout/refinement.hpp"
#include "layout/schedule.hpp"
#include "shm/array_allocator.hpp"
#include "transport/context.hpp"

namespace dace_redist {

/// The elements of a message, as a collective operation of MPI describes them.
struct TypedPart {
  Datatype type;  // a duplicate
  int count = 0;
  Index displacement = 0;  // bytes, from the array's address
  Index offset = 0;        // bytes, in the buffer
  Index nbytes = 0;
};

/// An array of which MPI packs or unpacks the messages, as only MPI knows where its elements lie, and a buffer with
/// them.
class PackedSide {
 public:
  /// \throws std::bad_alloc; Error if a part has more bytes than MPI packs.
  PackedSide(std::vector<TypedPart> parts, Index nbytes, MPI_Comm comm);
  PackedSide(const PackedSide&) = delete;
  PackedSide& operator=(const PackedSide&) = delete;
  ~PackedSide() { free_array(buffer_); }

  char* buffer() const { return buffer_; }
  /// The array of the next transfer.
  void set_array(const void* array) { array_ = array; }
  void pack() const;
  void unpack() const;

 private:
  std::vector<TypedPart> parts_;
  MPI_Comm comm_;
  char* buffer_ = nullptr;
  const void* array_ = nullptr;
};

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

/// The bytes of `count` elements of a datatype in the order of its type map, from the buffer's address on; the
/// innermost loop of each block has stride 1. None if the type has gaps that MPI does not tell, a constructor that is
/// unknown here, or too many pieces.
std::optional<std::vector<SideBlock>> datatype_blocks(MPI_Datatype type, Index count);

/// The arguments of one side of an MPI_Alltoallw, [ranks] each. Where a count is 0, nothing else is looked at.
struct TypedSide {
  const int *counts, *displacements;
  const MPI_Datatype* types;
};

/// What a rank sends or receives with these arguments. If one of the types cannot be decoded, MPI packs all messages.
MessageSide typed_side(const TypedSide& arguments, MPI_Comm comm);

}  // namespace dace_redist
