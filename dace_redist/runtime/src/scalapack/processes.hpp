// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Processes of BLACS contexts. Programs make contexts for single calls, and numbers of contexts are used again:
/// what is kept belongs to the processes, in their order.

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "scalapack/plans.hpp"

namespace dace_redist::scalapack {

/// The processes of a context, which redistribute among each other. Contexts of the same processes share one object.
struct Processes {
  explicit Processes(const std::vector<int>& world_ranks);
  int size() const { return static_cast<int>(ranks.size()); }
  int rank() const;

  std::unordered_map<int, int> ranks;  ///< by rank in MPI_COMM_WORLD
  MPI_Comm comm = MPI_COMM_NULL;       ///< of its own; null: left to ScaLAPACK
  Plans plans;
  std::mutex guard;  ///< one call at a time
};

/// The process grid of a context.
struct Grid {
  int rows = 0, columns = 0;
  std::vector<int> world_ranks;  ///< [rows * columns] in MPI_COMM_WORLD, row-major
  MPI_Comm comm = MPI_COMM_NULL;
  Processes* processes = nullptr;  ///< null: not asked for yet
};

/// This process in the grid of a context.
struct Position {
  Grid* grid = nullptr;  ///< null: outside, or the context was freed
  int row = -1, column = -1;
};

/// Local.
Position position_in(int context);

/// The processes of a context; null if they are left to ScaLAPACK. Collective over the context at its first call.
/// \param routine  named where a message has to be printed.
Processes* processes_of(int context, const char* routine);

}  // namespace dace_redist::scalapack
