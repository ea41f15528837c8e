// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans of messages that the caller gives, for C and Python.

#include <functional>

#include "api/handles.hpp"
#include "plan/datatype_blocks.hpp"

namespace dace_redist {

/// Lists of blocks, as dr_plan_create_messages() takes them.
struct BlockLists {
  std::int64_t send_count;
  const dr_block* sends;
  std::int64_t receive_count;
  const dr_block* receives;
};

/// What this rank sends and receives by a plan for `problem`. \throws Error if an argument is wrong.
MessageSides block_sides(const BlockLists& lists, const dr_problem& problem, Context& context);
MessageSides typed_sides(const TypedSide& source, const TypedSide& target, const dr_problem& problem, Context& context);

/// Makes a plan as a handle. Collective.
/// \param joint  arrays are lists of one address.
/// \param get_problem, describe  called once on each rank; what they throw on one rank is an error on all.
dr_plan* make_given(MPI_Comm comm, bool joint, const std::function<dr_problem()>& get_problem,
                    const std::function<MessageSides(const dr_problem& problem, Context& context)>& describe);

}  // namespace dace_redist
