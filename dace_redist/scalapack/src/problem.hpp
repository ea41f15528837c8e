// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The redistribution of a call, as a plan of the library.

#include "call.hpp"
#include "plans.hpp"
#include "side.hpp"

namespace dace_redist::scalapack {

struct Problem {
  Problem(const Call& call, Part source, Part target);

  /// Equal on all processes. Leading dimensions are not in it.
  Key key() const;
  /// Makes the plan of an entry, or has it take other leading dimensions. \return false if no process gets a plan.
  bool prepare(Entry& entry, MPI_Comm comm) const;

  const Call& call;
  const int m, n;  // of the target
  const Part source, target;

 private:
  dr_plan* plan(MPI_Comm comm) const;
};

}  // namespace dace_redist::scalapack
