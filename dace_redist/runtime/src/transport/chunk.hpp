// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A piece of a message as this rank sends or receives it by MPI. Start reading at: Chunk.

#include <functional>
#include <utility>
#include <vector>

#include "copy/buffer.hpp"
#include "copy/run_list.hpp"
#include "core/mpi.hpp"
#include "transport/message.hpp"

namespace dace_redist {

/// A piece of a message: packed in a buffer, straight from or into an array where it is contiguous there, or described
/// by an MPI datatype.
class Chunk {
 public:
  enum class Side { sent, received };

  /// Takes the next parts of a message, at most `max_bytes` but at least one.
  /// \param typed  whether to describe it by a datatype, unless its elements are computed with.
  Chunk(const PeerMessage& message, MessageCutter& cutter, const Tensors& tensors, Side side, Index max_bytes,
        bool typed);

  int peer() const { return peer_; }
  Index nbytes() const { return nbytes_; }
  /// Whether it needs a buffer.
  bool packed() const { return !in_place_ && types_.empty(); }

  /// Where the chunk lies in an array, if it is contiguous there; else null.
  const char* in_source(const Arrays& arrays) const;

  void pack(const Arrays& arrays, char* packed, int threads) const;
  void unpack(const char* packed, const Arrays& arrays, int threads) const;

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

  void make_types();
  template <class Base>
  MPI_Datatype datatype(const Base* bases);

  int peer_;
  Index nbytes_ = 0;
  bool in_place_ = false;
  Index array_offset_ = 0;  // bytes, if in place
  std::vector<Section> sections_;
  std::vector<Datatype> types_;  // [sections]
  Datatype joined_;              // of several sections, for arrays at these distances
  std::vector<MPI_Aint> distances_;
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

/// The partial results of a rank's own source, for transports that reduce those they receive in the order of steps.
class OwnSummand {
 public:
  /// \param self  of no bytes: there are none.
  void set(const PeerMessage& self, const Tensors& tensors);

  bool empty() const { return sent_.empty(); }
  /// Summands of lower steps are reduced before, of higher steps after.
  Index step() const { return step_; }
  void reduce(const Arrays& arrays, int threads) const;

 private:
  std::vector<Chunk> sent_, received_;
  Index step_ = 0;
  Buffer buffer_;
};

}  // namespace dace_redist
