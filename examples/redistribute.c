/* Moves a matrix: rows to columns. mpicc redistribute.c $(dace-redist config --cflags --libs); mpiexec -n 4 ./a.out */
#include <dace_redist.h>
#include <stdio.h>

static void check(int code) {
  if (code != DR_SUCCESS) fprintf(stderr, "%s\n", dr_error()), MPI_Abort(MPI_COMM_WORLD, 1);
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
  void *a, *b; /* in node-shared memory; malloc works, too */
  check(dr_memory_create(sizeof(double) * mine[0] * mine[1], &a));
  check(dr_memory_create(sizeof(double) * theirs[0] * theirs[1], &b));
  for (int64_t i = 0; i < mine[0] * mine[1]; ++i) ((double*)a)[i] = rank;

  dr_plan* plan;
  check(dr_plan_create(&problem, MPI_COMM_WORLD, &plan));
  check(dr_plan_execute(plan, a, b)); /* as often as wanted */
  if (rank == 0)
    printf("the first column came from ranks %g to %g\n", ((double*)b)[0], ((double*)b)[(shape[0] - 1) * theirs[1]]);

  check(dr_plan_free(&plan)), check(dr_distribution_free(&rows)), check(dr_distribution_free(&columns));
  check(dr_memory_free(&a)), check(dr_memory_free(&b));
  return MPI_Finalize();
}
