// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// An array of which MPI packs or unpacks the messages, as only MPI knows where its elements lie.

#include <vector>

#include "core/mpi.hpp"
#include "layout/intervals.hpp"
#include "shm/array_allocator.hpp"

namespace dace_redist {

/// The elements of a message, as a collective operation of MPI describes them.
struct TypedPart {
  Datatype type;  // a duplicate
  int count = 0;
  Index displacement = 0;  // bytes, from the array's address
  Index offset = 0;        // bytes, in the buffer
  Index nbytes = 0;
};

/// A buffer with the packed messages of one side of a rank.
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

}  // namespace dace_redist
