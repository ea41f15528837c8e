// SPDX-License-Identifier: BSD-3-Clause
#include "plan/packed_side.hpp"

#include <cstdint>
#include <limits>
#include <new>
#include <utility>

namespace dace_redist {
namespace {

/// Displacements may be addresses, from MPI_BOTTOM on, which is null.
void* displaced(const void* array, Index displacement) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(array) + static_cast<std::uintptr_t>(displacement));
}

void check_position(int position, Index nbytes) {
  if (position != nbytes)
    throw Error(text("MPI packs ", nbytes, " bytes to ", position, ": its packed messages have headers"));
}

}  // namespace

PackedSide::PackedSide(std::vector<TypedPart> parts, Index nbytes, MPI_Comm comm)
    : parts_(std::move(parts)), comm_(comm) {
  for (const TypedPart& part : parts_)
    if (part.nbytes > std::numeric_limits<int>::max())
      throw Error(text("MPI packs messages of at most ", std::numeric_limits<int>::max(), " bytes, got ", part.nbytes,
                       " of a datatype that is not understood: use several types, of fewer elements"));
  buffer_ = static_cast<char*>(allocate_array(static_cast<std::size_t>(nbytes), false, 0));
  if (!buffer_) throw std::bad_alloc();
}

void PackedSide::pack() const {
  for (const TypedPart& part : parts_) {
    int position = 0;
    check(MPI_Pack(displaced(array_, part.displacement), part.count, part.type.get(), buffer_ + part.offset,
                   static_cast<int>(part.nbytes), &position, comm_),
          "MPI_Pack");
    check_position(position, part.nbytes);
  }
}

void PackedSide::unpack() const {
  for (const TypedPart& part : parts_) {
    int position = 0;
    check(MPI_Unpack(buffer_ + part.offset, static_cast<int>(part.nbytes), &position,
                     displaced(array_, part.displacement), part.count, part.type.get(), comm_),
          "MPI_Unpack");
    check_position(position, part.nbytes);
  }
}

}  // namespace dace_redist
