// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Processes of BLACS contexts. Programs make contexts for single calls, and numbers of contexts are used again: plans
/// belong to the processes, in their order.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "plans.hpp"

namespace dace_redist::scalapack {

/// The processes of a context, with a communicator of their own. Contexts of the same processes share one object. It
/// lives until the end of the program; there are as many as communicators at most.
struct Processes {
  explicit Processes(MPI_Comm own) : comm(own) {}

  const MPI_Comm comm;
  Plans plans;
};

/// The process grid of a context, and this process in it. It is freed with the context, which all of its processes do
/// between the same calls: what they decide by its contents, they decide alike. A table of processes that drops the
/// least recently used ones could not hold them: each process has other tables, so some would have forgotten processes
/// that others had not, and leave a call to ScaLAPACK for which the others make a plan.
struct Grid {
  Grid(int context, MPI_Comm comm);

  /// Whether this grid has the processes of another one, in any order.
  bool has_processes_of(const Grid& other) const { return ascending == other.ascending; }

  int rows, columns;
  int row, column;  ///< of this process
  const MPI_Comm comm;
  const std::vector<int> world_ranks;      ///< [rows * columns] in MPI_COMM_WORLD, row-major
  std::vector<int> ascending;              ///< the same, in order
  std::unordered_map<int, int> positions;  ///< by rank in MPI_COMM_WORLD
  bool is_refused = false;                 ///< a communicator
  Processes* processes = nullptr;          ///< null: without a communicator of their own
};

/// The grid of a context; null outside of it, if the context was freed, or if the program uses another MPI. Local.
Grid* grid_of(int context);

/// The processes of a grid, connected if need be; null: they are left to ScaLAPACK. Collective at the first call.
/// \param routine  named where a message has to be printed.
Processes* connected(Grid& grid, const char* routine);

}  // namespace dace_redist::scalapack
