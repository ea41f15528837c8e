/* Solves A x = b by ScaLAPACK: rows of each rank, in C order, become column-major blocks, and x rows again. On Debian:
   mpicc solve.c $(dace-redist config --cflags --libs) -lscalapack-openmpi -lm; mpiexec -n 4 ./a.out */
#include <dace_redist.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int Csys2blacs_handle(MPI_Comm comm);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridexit(int context);
void pdgesv_(const int* n, const int* nrhs, double* a, const int* ia, const int* ja, const int* desca, int* pivots,
             double* b, const int* ib, const int* jb, const int* descb, int* info);

enum { BLOCK = 64 };

static int rank, grid[2], context; /* a process grid, as BLACS numbers it with order "Row" */

static void check(int code) {
  if (code != DR_SUCCESS) fprintf(stderr, "%s\n", dr_error()), MPI_Abort(MPI_COMM_WORLD, 1);
}

typedef struct {
  dr_distribution *rows, *blocks;
  int64_t row_shape[2], block_shape[2], strides[2]; /* of local arrays; strides: of `blocks`, column-major */
  int descriptor[9];                                /* ScaLAPACK's of `blocks` */
} Matrix;

static Matrix describe(int m, int n) {
  Matrix matrix;
  const int64_t shape[] = {m, n}, row_grid[] = {grid[0] * grid[1], 1}, block_grid[] = {grid[0], grid[1]};
  const int64_t block[] = {BLOCK, BLOCK};
  check(dr_distribution_create_blocks(2, shape, 2, row_grid, NULL, NULL, NULL, &matrix.rows));
  check(dr_distribution_create_blocks(2, shape, 2, block_grid, NULL, block, NULL, &matrix.blocks));
  check(dr_distribution_local_shape(matrix.rows, rank, matrix.row_shape));
  check(dr_distribution_local_shape(matrix.blocks, rank, matrix.block_shape));
  const int64_t leading = matrix.block_shape[0] > 0 ? matrix.block_shape[0] : 1;
  matrix.strides[0] = 1, matrix.strides[1] = leading;
  const int descriptor[] = {1, context, m, n, BLOCK, BLOCK, 0, 0, (int)leading};
  for (int i = 0; i < 9; ++i) matrix.descriptor[i] = descriptor[i];
  return matrix;
}

static double* allocate(const int64_t shape[2]) { return malloc(sizeof(double) * (size_t)(shape[0] * shape[1] + 1)); }

static void move(const Matrix* matrix, int to_blocks, const double* from, double* to) {
  dr_problem problem;
  dr_plan* plan;
  check(dr_problem_init(&problem));
  if (to_blocks) {
    problem.source = matrix->rows, problem.target = matrix->blocks, problem.target_strides = matrix->strides;
  } else {
    problem.source = matrix->blocks, problem.target = matrix->rows, problem.source_strides = matrix->strides;
  }
  problem.element_bytes = sizeof(double);
  check(dr_plan_create(&problem, MPI_COMM_WORLD, &plan)); /* keep it to move other arrays */
  check(dr_plan_execute(plan, from, to));
  check(dr_plan_free(&plan));
}

int main(int argc, char** argv) {
  const int n = 1000, one = 1;
  int size, info;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, grid);
  context = Csys2blacs_handle(MPI_COMM_WORLD);
  Cblacs_gridinit(&context, "Row", grid[0], grid[1]);

  Matrix A = describe(n, n), b = describe(n, 1);
  double *A_rows = allocate(A.row_shape), *b_rows = allocate(b.row_shape), *x_rows = allocate(b.row_shape);
  double *A_blocks = allocate(A.block_shape), *b_blocks = allocate(b.block_shape);
  int64_t rows = A.row_shape[0], first;
  MPI_Scan(&rows, &first, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  first -= rows;
  for (int64_t i = 0; i < rows; ++i) {
    b_rows[i] = 0;
    for (int j = 0; j < n; ++j) {
      A_rows[i * n + j] = sin(3 * (first + i) + 5 * j * j) + (first + i == j ? n : 0);
      b_rows[i] += A_rows[i * n + j] * (j + 1); /* x is 1, 2, 3, ... */
    }
  }

  int* pivots = malloc(sizeof(int) * (size_t)(A.block_shape[0] + BLOCK));
  move(&A, 1, A_rows, A_blocks);
  move(&b, 1, b_rows, b_blocks);
  pdgesv_(&n, &one, A_blocks, &one, &one, A.descriptor, pivots, b_blocks, &one, &one, b.descriptor, &info);
  move(&b, 0, b_blocks, x_rows);

  double error = info == 0 ? 0 : INFINITY;
  for (int64_t i = 0; i < rows; ++i) error = fmax(error, fabs(x_rows[i] - (double)(first + i + 1)));
  MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("%s\n", error < 1e-9 * n ? "x solves A x = b" : "x is wrong");

  check(dr_distribution_free(&A.rows)), check(dr_distribution_free(&A.blocks));
  check(dr_distribution_free(&b.rows)), check(dr_distribution_free(&b.blocks));
  free(A_rows), free(b_rows), free(x_rows), free(A_blocks), free(b_blocks), free(pivots);
  Cblacs_gridexit(context);
  return MPI_Finalize();
}
