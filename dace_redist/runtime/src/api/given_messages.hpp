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

/// The arguments of MPI_Alltoallw.
struct AlltoallwArguments {
  TypedSide source, target;
};

/// Make plans as handles. Collective.
/// \param joint    arrays are lists of one address.
/// \param problem  called once on each rank; what it throws on one rank is an error on all.
dr_plan* make_messages_plan(MPI_Comm comm, bool joint, const std::function<dr_problem()>& problem,
                            const BlockLists& lists);
dr_plan* make_alltoallw_plan(MPI_Comm comm, bool joint, const std::function<dr_problem()>& problem,
                             const std::function<AlltoallwArguments()>& arguments);

}  // namespace dace_redist
