// SPDX-License-Identifier: BSD-3-Clause
#include "processes.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
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
  int handle = 0;  // in Fortran
  get.get()(&context, &communicator, &handle);
#ifdef MPI_ABI_VERSION  // the standard ABI has neither MPI_Fint nor MPI_Comm_f2c
  return MPI_Comm_fromint(handle);
#else
  return MPI_Comm_f2c(handle);
#endif
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

std::vector<int> world_ranks_of(MPI_Comm comm, int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size)), world_ranks(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group group, world;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, ranks.data(), world, world_ranks.data());
  MPI_Group_free(&world);
  MPI_Group_free(&group);
  return world_ranks;
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

/// \return null: not there.
Processes* find_set(const std::vector<int>& world_ranks) {
  const auto found = sets.find(world_ranks);
  return found == sets.end() ? nullptr : &found->second;
}

Grid* new_grid(int context, MPI_Comm comm) {
  auto* const grid = new Grid;
  gridinfo.get()(&context, &grid->rows, &grid->columns, &grid->row, &grid->column);
  grid->comm = comm;
  if (!sets.empty()) grid->processes = find_set(grid->members().world_ranks);
  MPI_Comm_set_attr(comm, grid_keyval(), grid);
  return grid;
}

}  // namespace

const Grid::Members& Grid::members() const {
  if (found_members) return *found_members;
  Members all{world_ranks_of(comm, rows * columns)};
  all.ascending = all.world_ranks;
  std::sort(all.ascending.begin(), all.ascending.end());
  auto mixed = static_cast<std::uint64_t>(rows);
  for (const int rank : all.world_ranks) {
    all.positions.emplace(rank, static_cast<int>(all.positions.size()));
    mixed = (mixed ^ static_cast<std::uint32_t>(rank)) * 1099511628211ull;
  }
  all.signature = static_cast<int>(mixed >> 34);
  found_members = std::make_unique<const Members>(std::move(all));
  return *found_members;
}

Grid* grid_of(int context) {
  if (!is_usable() || !has_process(context)) return nullptr;
  const MPI_Comm comm = communicator_of(context);
  void* attribute = nullptr;
  int found = 0;
  MPI_Comm_get_attr(comm, grid_keyval(), &attribute, &found);
  return found ? static_cast<Grid*>(attribute) : new_grid(context, comm);
}

std::int64_t moved(Grid& grid, std::uint64_t kind, std::int64_t nbytes) {
  return (grid.processes ? grid.processes->traffic : grid.traffic).add(kind, nbytes);
}

Processes* connected(Grid& grid, const char* routine) {
  if (grid.processes || grid.is_refused) return grid.processes;
  const Grid::Members& members = grid.members();
  if ((grid.processes = find_set(members.world_ranks))) return grid.processes;
  const bool in_world = members.positions.count(MPI_UNDEFINED) == 0;  // all of them find the same
  if (in_world && agreed_maximum(static_cast<int>(sets.size()), grid.comm, routine) < max_sets) {
    MPI_Comm comm;
    MPI_Comm_dup(grid.comm, &comm);
    grid.processes = &sets.try_emplace(members.world_ranks, comm).first->second;
    grid.processes->traffic = grid.traffic;
  }
  grid.is_refused = !grid.processes;
  return grid.processes;
}

}  // namespace dace_redist::scalapack
