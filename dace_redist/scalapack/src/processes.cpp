// SPDX-License-Identifier: BSD-3-Clause
#include "processes.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "dace_redist_library.hpp"
#include "functions.hpp"

namespace dace_redist::scalapack {
namespace {

/// Sets of processes with a communicator of their own, at most: MPIs have some thousand communicators.
constexpr int max_sets = 256;

std::string mpi_version() {
  std::string version(8192, '\0');  // of any MPI
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  return version;
}

const char* const own_interface = library::mpi_interface(MPI_COMM_WORLD);

/// Whether the program's MPI has the interface that this library was compiled for. Another one has other handles.
const bool is_own_mpi =
    own_interface == std::string("mpiabi") ||
    (mpi_version().find("Open MPI") != std::string::npos) == (own_interface == std::string("openmpi"));

/// Whether calls can be carried out. Prints once why not.
bool is_usable() {
  static std::once_flag reported;
  if (!is_own_mpi)
    std::call_once(reported, [] {
      std::fprintf(
          stderr,
          "dace-redist: libdace_redist_scalapack is for the interface %s, but the program uses %.40s: ScaLAPACK is not "
          "replaced; preload the library that `dace-redist config --preload scalapack` prints for that MPI\n",
          own_interface, mpi_version().c_str());
    });
  int initialized = 0;
  MPI_Initialized(&initialized);
  return is_own_mpi && initialized;
}

const Function<void(const int*, int*, int*, int*, int*)> gridinfo{"blacs_gridinfo_"};
const Function<void(const int*, const int*, int*)> get{"blacs_get_"};

/// Whether this process is in the grid of a context; not if the context was freed.
bool has_process(int context) {
  int rows = -1, columns = -1, row = -1, column = -1;
  gridinfo.get()(&context, &rows, &columns, &row, &column);
  return 0 <= row && row < rows && 0 <= column && column < columns;
}

/// The communicator of a context, which has the processes in row-major order.
MPI_Comm communicator_of(int context) {
  constexpr int communicator = 10;
  int handle = 0;
  get.get()(&context, &communicator, &handle);
  return library::communicator_of_fortran(handle);
}

/// Called as BLACS frees the communicator of a context.
int delete_grid(MPI_Comm, int, void* grid, void*) {
  delete static_cast<Grid*>(grid);
  return MPI_SUCCESS;
}

int grid_keyval() {
  static const int keyval = [] {
    int made = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_grid, &made, nullptr);
    return made;
  }();
  return keyval;
}

/// The largest number of all processes. A process that waits long says why that may be.
int agreed_maximum(int mine, MPI_Comm comm, const char* routine) {
  int maximum = 0;
  MPI_Request request;
  MPI_Iallreduce(&mine, &maximum, 1, MPI_INT, MPI_MAX, comm, &request);
  library::complete(request, comm, routine,
                    "dace-redist: if they run ScaLAPACK without libdace_redist_scalapack, this rank waits forever: set "
                    "LD_PRELOAD on every rank (mpiexec -x LD_PRELOAD)\n");
  return maximum;
}

/// Processes with a communicator of their own, by their ranks in MPI_COMM_WORLD. They stay: MPI_Finalize frees their
/// plans.
std::map<std::vector<int>, Processes>& sets = *new std::map<std::vector<int>, Processes>;

}  // namespace

Grid::Grid(int context, MPI_Comm its_comm) : comm(its_comm), world_ranks(library::ranks_in(comm, MPI_COMM_WORLD)) {
  gridinfo.get()(&context, &rows, &columns, &row, &column);
  ascending = world_ranks;
  std::sort(ascending.begin(), ascending.end());
  for (const int rank : world_ranks) positions.emplace(rank, static_cast<int>(positions.size()));
}

Grid* grid_of(int context) {
  if (!is_usable() || !has_process(context)) return nullptr;
  const MPI_Comm comm = communicator_of(context);
  void* attribute = nullptr;
  int found = 0;
  MPI_Comm_get_attr(comm, grid_keyval(), &attribute, &found);
  if (found) return static_cast<Grid*>(attribute);
  auto* const grid = new Grid(context, comm);
  MPI_Comm_set_attr(comm, grid_keyval(), grid);
  return grid;
}

Processes* connected(Grid& grid, const char* routine) {
  if (grid.processes || grid.is_refused) return grid.processes;
  if (const auto found = sets.find(grid.world_ranks); found != sets.end()) return grid.processes = &found->second;
  const bool in_world = grid.positions.count(MPI_UNDEFINED) == 0;  // all of them find the same
  if (in_world && agreed_maximum(static_cast<int>(sets.size()), grid.comm, routine) < max_sets) {
    MPI_Comm comm;
    MPI_Comm_dup(grid.comm, &comm);
    grid.processes = &sets.try_emplace(grid.world_ranks, comm).first->second;
  }
  grid.is_refused = !grid.processes;
  return grid.processes;
}

}  // namespace dace_redist::scalapack
