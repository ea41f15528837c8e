// MPI ends although threads have made plans with windows in an order of their own on each rank.
//
// Usage: mpiexec -n 2 mpi_finalize [leak], where "leak" loses 10 objects, for LeakSanitizer

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "mpi_leaks.hpp"
#include "plan/plan.hpp"

namespace {

MPI_Comm comms[2];

}  // namespace

/// The communicator that has the number of the rank comes last.
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  int rank = 0;
  const int code = PMPI_Comm_dup(comm, made);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (comm == comms[rank]) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return code;
}

int main(int argc, char** argv) {
  using namespace dace_redist;
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  for (MPI_Comm& comm : comms) PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const TensorProblem tensor{Distribution({0, 2, 1, 64, 64, 2, 0, -1, 0, 0, -1, 0}, "source"),
                             Distribution({0, 2, 1, 64, 64, 2, -1, 0, 0, 0, -1, 0}, "target"), 1};
  std::vector<std::thread> threads;
  for (MPI_Comm comm : comms)
    threads.emplace_back([comm, &tensor] {
      Plan::make(comm, [&] { return Problem{"windows", "RMA", default_options(), {tensor}}; });
    });
  for (std::thread& thread : threads) thread.join();
  for (int lost = 0; argc > 1 && lost < 10; ++lost) new TensorProblem(tensor);
  MPI_Finalize();
  std::printf(level == MPI_THREAD_MULTIPLE ? "MPI ended\n" : "no threads\n");
}
