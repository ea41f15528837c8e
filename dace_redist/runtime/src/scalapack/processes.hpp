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

  std::unordered_map<int, int> ranks;  ///< by rank in MPI_COMM_WORLD
  MPI_Comm comm = MPI_COMM_NULL;       ///< of its own; null: left to ScaLAPACK, or not needed yet
  bool asked = false;                  ///< for the communicator
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

/// Local. Outside if the program uses another MPI.
Position position_in(int context);

/// Local.
Processes& processes_of(Grid& grid);

/// Whether the processes of a grid have a communicator; if not, they are left to ScaLAPACK. Collective at the first
/// call. \param routine  named where a message has to be printed.
bool is_connected(Grid& grid, const char* routine);

}  // namespace dace_redist::scalapack
