// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The ranks that the sides of a problem name.

#include "core/mpi.hpp"
#include "dace_redist.h"
#include "layout/distribution.hpp"

namespace dace_redist {

/// The ranks of a plan: those of a communicator, or of the merged groups of an intercommunicator, one for each side.
class PlanRanks {
 public:
  /// Collective for an intercommunicator; its first call makes the merged one, which is freed with it.
  /// \param sends  of the problem of this rank; below 0: it has none.
  /// \throws Error if the other group does not call, now or before, or unless one group sends and the other does not.
  PlanRanks(MPI_Comm comm, int sends);

  MPI_Comm comm() const { return comm_; }
  /// "source" or "target" with the ranks of comm(). \throws Error if it needs more than its group has.
  Distribution placed(const Distribution& side, const char* name, bool is_source) const;
  /// \throws ArgumentError if `sends` of a problem is wrong.
  void check_sends(const dr_problem& problem) const;

 private:
  MPI_Comm comm_;
  int is_inter_ = 0;
  bool sends_;
  int first_[2] = {}, count_[2] = {};  // ranks of this group, and of the other
};

}  // namespace dace_redist
