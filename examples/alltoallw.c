/* Rows to columns by datatypes. mpicc alltoallw.c $(dace-redist config --cflags --libs); mpiexec -n 4 ./a.out */
#include <dace_redist.h>
#include <stdio.h>

enum { MAX_RANKS = 64, N = 2 };

int main(int argc, char** argv) {
  int rank, size, sendcounts[MAX_RANKS], recvcounts[MAX_RANKS], sdispls[MAX_RANKS], rdispls[MAX_RANKS];
  double rows[N * N * MAX_RANKS], columns[N * N * MAX_RANKS];
  MPI_Datatype block, sent[MAX_RANKS], received[MAX_RANKS];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);                /* at most MAX_RANKS */
  MPI_Type_vector(N, N, N * size, MPI_DOUBLE, &block); /* N x N of N rows */
  MPI_Type_commit(&block);
  for (int peer = 0; peer < size; ++peer) {
    sent[peer] = block, received[peer] = MPI_DOUBLE; /* the sides may differ */
    sendcounts[peer] = 1, recvcounts[peer] = N * N;
    sdispls[peer] = N * peer * (int)sizeof(double), rdispls[peer] = N * sdispls[peer];
  }
  for (int i = 0; i < N * N * size; ++i) rows[i] = rank;

  dr_plan* plan; /* null: default strategy and options */
  if (dr_plan_create_alltoallw(NULL, sendcounts, sdispls, sent, recvcounts, rdispls, received, MPI_COMM_WORLD, &plan) ||
      dr_plan_execute(plan, rows, columns) || dr_plan_free(&plan)) /* execute in place of each MPI_Alltoallw */
    fprintf(stderr, "%s\n", dr_error()), MPI_Abort(MPI_COMM_WORLD, 1);
  if (rank == 0) printf("the first column came from ranks %g to %g\n", columns[0], columns[N * N * size - 1]);
  MPI_Type_free(&block);
  return MPI_Finalize();
}
