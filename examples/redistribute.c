/* Moves a matrix from blocks of rows to blocks of columns. Run: mpiexec -n 4 ./redistribute */
#include <dace_redist.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int code) {
  if (code == DR_SUCCESS) return;
  fprintf(stderr, "%s\n", dr_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  const int64_t shape[] = {1000, 700};
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int64_t row_grid[] = {size, 1}, column_grid[] = {1, size};

  dr_problem problem;
  dr_distribution *rows, *columns;
  check(dr_distribution_create_blocks(2, shape, 2, row_grid, NULL, NULL, NULL, &rows));
  check(dr_distribution_create_blocks(2, shape, 2, column_grid, NULL, NULL, NULL, &columns));
  check(dr_problem_init(&problem));
  problem.source = rows, problem.target = columns, problem.element_bytes = sizeof(double);

  int64_t mine[2], theirs[2];
  check(dr_distribution_local_shape(rows, rank, mine));
  check(dr_distribution_local_shape(columns, rank, theirs));
  double* a = malloc(sizeof(double) * (mine[0] * mine[1] + 1));
  void* b;
  check(dr_memory_create(sizeof(double) * theirs[0] * theirs[1], &b)); /* or malloc */
  for (int64_t i = 0; i < mine[0] * mine[1]; ++i) a[i] = rank;

  dr_plan* plan;
  check(dr_plan_create(&problem, MPI_COMM_WORLD, &plan));
  check(dr_plan_execute(plan, a, b)); /* as often as wanted */
  if (rank == 0)
    printf("the first column came from ranks %g to %g\n", ((double*)b)[0], ((double*)b)[(shape[0] - 1) * theirs[1]]);

  check(dr_plan_free(&plan)), check(dr_distribution_free(&rows)), check(dr_distribution_free(&columns));
  check(dr_memory_free(&b)), free(a);
  return MPI_Finalize();
}
