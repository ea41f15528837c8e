// SPDX-License-Identifier: BSD-3-Clause
// One rank fails in a transfer of all ranks but the one after it, which waits in MPI: prints the messages that tell of
// it, and returns 1 unless all others get an error that names the rank.

#include <dace_redist.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {
long notices = 0;
}

extern "C" int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  notices += tag == 0 && count > static_cast<int>(sizeof(std::int64_t));  // shorter ones tell that a rank has left
  return PMPI_Isend(bytes, count, type, rank, tag, comm, request);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int failing = size / 2, absent = failing + 1;
  std::vector<std::int64_t> ranks;
  for (int other = 0; other < size; ++other)
    if (other != absent) ranks.push_back(other);
  const std::int64_t grid = size - 1, shape[] = {4 * grid, 4 * grid};
  const int rows[] = {0, DR_NOT_SPLIT}, columns[] = {DR_NOT_SPLIT, 0};
  dr_problem problem;
  dr_problem_init(&problem);
  dr_distribution *source, *target;
  dr_distribution_create_blocks(2, shape, 1, &grid, rows, nullptr, ranks.data(), &source);
  dr_distribution_create_blocks(2, shape, 1, &grid, columns, nullptr, ranks.data(), &target);
  problem.source = source;
  problem.target = target;
  problem.element_bytes = 8;
  if (argc > 1) problem.strategy = argv[1];
  dr_plan* plan = nullptr;
  bool right = dr_plan_create(&problem, MPI_COMM_WORLD, &plan) == 0;
  std::vector<double> from(16 * static_cast<std::size_t>(grid)), to(from.size());
  if (right && rank != absent) {
    const int code = dr_plan_execute(plan, rank == failing ? nullptr : from.data(), to.data());
    const std::string name =
        rank == failing ? "source is null" : "on rank " + std::to_string(failing) + ": source is null";
    right = code != 0 && std::string(dr_error()).find(name) != std::string::npos;
    if (!right) std::printf("rank %d: %d %s\n", rank, code, code ? dr_error() : "");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  long all = 0;
  MPI_Reduce(&notices, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%ld notices\n", all);
  dr_distribution_free(&source);
  dr_distribution_free(&target);
  dr_plan_free(&plan);
  MPI_Finalize();
  return right ? 0 : 1;
}
