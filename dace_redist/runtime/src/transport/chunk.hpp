// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A piece of a message as this rank sends or receives it by MPI, or keeps it. Start reading at: Chunk.

#include <functional>
#include <limits>
#include <vector>

#include "copy/run_list.hpp"
#include "core/mpi.hpp"
#include "transport/message.hpp"

namespace dace_redist {

/// A piece of a message: packed in a buffer, straight from or into an array where it is contiguous there, or described
/// by an MPI datatype.
class Chunk {
 public:
  enum class Side { sent, received, kept };  ///< kept: the self copy

  /// Takes the next parts of a message, at most `max_bytes` but at least one.
  /// \param typed  whether to describe it by a datatype, unless its elements are computed with.
  Chunk(const PeerMessage& message, MessageCutter& cutter, const Tensors& tensors, Side side, Index max_bytes,
        bool typed);

  int peer() const { return peer_; }
  Index nbytes() const { return nbytes_; }
  /// Whether it is copied and contiguous in this rank's array.
  bool in_place() const { return in_place_; }
  /// Whether it needs a buffer.
  bool packed() const { return !in_place_ && !typed_; }
  /// Its start in the array, if it is in place.
  const char* in_source(const Arrays& arrays) const { return arrays.sources[sections_[0].tensor] + array_offset_; }

  void pack(const Arrays& arrays, char* packed, int threads) const;
  void unpack(const char* packed, const Arrays& arrays, int threads) const;
  /// Copies elements that the rank keeps.
  void copy(const Arrays& arrays, int threads) const;

  /// Starts to send it: `packed`, unless it needs no buffer.
  void send(const Arrays& arrays, const char* packed, int tag, MPI_Comm comm, MPI_Request* request);
  void receive(const Arrays& arrays, char* packed, int tag, MPI_Comm comm, MPI_Request* request);

 private:
  /// The parts of one tensor.
  struct Section {
    int tensor;
    Index element_bytes, offset;  ///< bytes in the packed chunk
    CopyList copies;
    std::vector<StridedBlock> typed_blocks;
  };
  /// Arguments of an MPI call.
  template <class Byte>
  struct Place {
    Byte* start;
    int count;
    MPI_Datatype type;
  };

  template <class Byte>
  Place<Byte> place(Byte* const* bases, Byte* packed);
  void make_type(std::vector<MPI_Aint> distances);
  MPI_Datatype datatype(const char* const* bases);

  int peer_;
  Index nbytes_ = 0;
  bool in_place_ = false, typed_ = false;
  Index array_offset_ = 0;  // bytes, if in place
  std::vector<Section> sections_;
  Datatype type_;  // for arrays at these distances from the first one
  std::vector<MPI_Aint> distances_;
};

/// The part of a block between an array and a packed message; of the self copy the block.
/// \param displacement  elements of the message before the part.
StridedBlock packed_side(Chunk::Side side, const StridedBlock& part, Index displacement);

/// More bytes than any message has.
inline constexpr Index unlimited = std::numeric_limits<Index>::max() / 4;

/// How messages are cut and paced.
struct Cutting {
  int threads = 1;     ///< for copies in main memory
  bool typed = false;  ///< whether MPI's datatypes describe chunks
  Index chunk_bytes = unlimited;
  Index depth = unlimited;  ///< chunks in flight per direction
  double growth = 1.0;
  Index max_ahead = unlimited;  ///< chunks that a rank sends ahead of those it has received
};

/// Cuts messages into chunks of at most `max_bytes`. With `growth` > 1 the first chunk of a message has a sixteenth of
/// that, and each further one up to `growth` times the size of the one before: the pipeline fills sooner
/// ("superpipeline"; A. Denis, Euro-Par 2011).
///
/// each_chunk() calls `make` with the largest size of each chunk, to take its parts from the cutter.
void each_chunk(const PeerMessage& message, const Tensors& tensors, Index max_bytes, double growth,
                const std::function<void(MessageCutter& cutter, Index nbytes)>& make);
std::vector<Chunk> cut(const PeerMessage& message, const Tensors& tensors, Chunk::Side side, Index max_bytes,
                       double growth = 1.0, bool typed = false);

}  // namespace dace_redist
