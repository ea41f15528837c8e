// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// MPI's datatypes as blocks of bytes.

#include <optional>
#include <vector>

#include "plan/given_messages.hpp"

namespace dace_redist {

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
