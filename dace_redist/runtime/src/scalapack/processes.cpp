// SPDX-License-Identifier: BSD-3-Clause
#include "scalapack/processes.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "core/mpi.hpp"
#include "scalapack/functions.hpp"

namespace dace_redist::scalapack {
namespace {

/// Sets of processes with a communicator of their own, at most: MPIs have some thousand communicators.
constexpr int max_sets = 256;
constexpr std::chrono::seconds patience{10};

/// Whether MPI is the one that this library was compiled for. Another one has other handles.
bool is_own_mpi() {
  std::string version(8192, '\0');  // of any MPI
  int length = 0, initialized = 0;
  MPI_Initialized(&initialized);
  MPI_Get_library_version(version.data(), &length);
#if defined(OPEN_MPI)
  const char* const own = "Open MPI";
#elif defined(MPICH_VERSION)
  const char* const own = "MPICH";
#else
  const char* const own = "";
#endif
  if (version.find(own) == std::string::npos)
    std::fprintf(stderr,
                 "dace-redist: libdace_redist_scalapack is for %s, but the program uses %.40s: ScaLAPACK is not "
                 "replaced; preload the library that `dace-redist config --preload scalapack` prints for that MPI\n",
                 own, version.c_str());
  return initialized && version.find(own) != std::string::npos;
}

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
  int maximum = 0, done = 0;
  MPI_Request request;
  MPI_Iallreduce(&mine, &maximum, 1, MPI_INT, MPI_MAX, comm, &request);
  const auto start = std::chrono::steady_clock::now();
  for (bool warned = false; !done;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > std::chrono::milliseconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (done || warned || waited < patience) continue;
    std::fprintf(stderr,
                 "dace-redist: %s waits for other processes of its context; if they run ScaLAPACK without "
                 "libdace_redist_scalapack, it waits forever: set LD_PRELOAD on every rank (mpiexec -x LD_PRELOAD)\n",
                 routine);
    warned = true;
  }
  return maximum;
}

Processes* find_processes(const std::vector<int>& world_ranks) {
  static std::mutex guard;
  static auto& all = *new std::map<std::vector<int>, Processes>;
  const std::lock_guard<std::mutex> locked(guard);
  return &all.try_emplace(world_ranks, world_ranks).first->second;
}

}  // namespace

Processes::Processes(const std::vector<int>& world_ranks) {
  for (const int rank : world_ranks) ranks.emplace(rank, static_cast<int>(ranks.size()));
}

Position position_in(int context) {
  using GridInfo = void(const int*, int*, int*, int*, int*);
  using Get = void(const int*, const int*, int*);
  static GridInfo* const gridinfo = function<GridInfo>("blacs_gridinfo_");
  static Get* const get = function<Get>("blacs_get_");
  static const bool own_mpi = is_own_mpi();
  int rows = -1, columns = -1;
  Position position;
  if (!own_mpi) return position;
  gridinfo(&context, &rows, &columns, &position.row, &position.column);
  if (position.row < 0 || position.column < 0 || position.row >= rows || position.column >= columns) return {};
  constexpr int communicator = 10;
  int handle = 0, found = 0;
  get(&context, &communicator, &handle);
  const MPI_Comm comm = communicator_of_fortran(handle);
  void* attribute = nullptr;
  MPI_Comm_get_attr(comm, grid_keyval(), &attribute, &found);
  position.grid = static_cast<Grid*>(attribute);
  if (found) return position;
  position.grid = new Grid{rows, columns, world_ranks_of(comm, rows * columns), comm};
  MPI_Comm_set_attr(comm, grid_keyval(), position.grid);
  return position;
}

Processes& processes_of(Grid& grid) {
  if (!grid.processes) grid.processes = find_processes(grid.world_ranks);
  return *grid.processes;
}

bool is_connected(Grid& grid, const char* routine) {
  static std::atomic<int> sets{0};
  Processes& processes = processes_of(grid);
  const bool in_world = processes.ranks.count(MPI_UNDEFINED) == 0;  // all of them find the same
  if (!std::exchange(processes.asked, true) && in_world && agreed_maximum(sets, grid.comm, routine) < max_sets) {
    MPI_Comm_dup(grid.comm, &processes.comm);
    ++sets;
  }
  return processes.comm != MPI_COMM_NULL;
}

}  // namespace dace_redist::scalapack
