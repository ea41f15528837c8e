/* Makes a plan and runs it; the last rank calls each late. */
#include <dace_redist.h>
#include <stdio.h>
#include <unistd.h>

static void check(int code) {
  if (code != DR_SUCCESS) fprintf(stderr, "%s\n", dr_error()), MPI_Abort(MPI_COMM_WORLD, 1);
}

static void late(int rank, int size) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) sleep(2);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int64_t shape[] = {size, size}, row_grid[] = {size, 1}, column_grid[] = {1, size};
  double row[8] = {0}, column[8];
  dr_distribution *rows, *columns;
  dr_problem problem, without;
  dr_plan *first, *second, *third;
  check(dr_distribution_create_blocks(2, shape, 2, row_grid, NULL, NULL, NULL, &rows));
  check(dr_distribution_create_blocks(2, shape, 2, column_grid, NULL, NULL, NULL, &columns));
  check(dr_problem_init(&problem));
  problem.source = rows, problem.target = columns, problem.element_bytes = sizeof(double), problem.label = "rows";
  check(dr_problem_init(&without));
  without.element_bytes = sizeof(double);
  late(rank, size);
  check(dr_plan_create(&problem, MPI_COMM_WORLD, &first));
  late(rank, size);
  check(dr_plan_create(&problem, MPI_COMM_WORLD, &second));
  late(rank, size);
  check(dr_plan_execute(second, row, column));
  late(rank, size);
  check(dr_plan_create_messages(&without, 0, NULL, 0, NULL, MPI_COMM_WORLD, &third));
  check(dr_plan_free(&third));
  check(dr_plan_free(&first));
  check(dr_plan_free(&second));
  return MPI_Finalize();
}
