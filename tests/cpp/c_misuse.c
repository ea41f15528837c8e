/* Every misuse of the C interface returns a code and says why; nothing ends the process. */
#define _POSIX_C_SOURCE 200112L /* setenv */
#include <dace_redist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures = 0;

static void expect(int code, int expected, const char* said, int line) {
  if (code == expected && strstr(dr_error(), said)) return;
  fprintf(stderr, "line %d: code %d instead of %d, or \"%s\" does not say \"%s\"\n", line, code, expected, dr_error(),
          said);
  ++failures;
}
#define EXPECT(call, expected, said) expect(call, expected, said, __LINE__)
#define GOOD(call) EXPECT(call, DR_SUCCESS, "")
#define ARGUMENT(call, said) EXPECT(call, DR_ERROR_ARGUMENT, said)
#define PLAN(problem, said) EXPECT(dr_plan_create(problem, MPI_COMM_WORLD, &plan), DR_ERROR_PLAN, said)

static int testsome_fails = 0;           /* it does its work, and then says that it failed */
static dr_request** waits_within = NULL; /* waited for while it is tested, as by another thread */

int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]) {
  if (waits_within) ARGUMENT(dr_request_wait(waits_within), "is under way in another thread");
  const int code = PMPI_Testsome(count, requests, done, indices, statuses);
  return testsome_fails ? MPI_ERR_OTHER : code;
}

static int types_freed = 0;

int MPI_Type_free(MPI_Datatype* type) {
  ++types_freed;
  return PMPI_Type_free(type);
}

static const int64_t shape[] = {6, 4};

static void misuse_distributions(void) {
  int64_t grid[] = {2, 0}, owner[] = {0}, count = -1, rank = -1;
  int64_t outside[] = {6, 0};
  const int64_t vast[] = {((int64_t)1 << 32) + 1, (int64_t)1 << 32}, single[] = {1, 1}, empty[] = {0, 4};
  int ndim;
  dr_distribution* d = NULL;
  ARGUMENT(dr_distribution_create_blocks(17, shape, 1, grid, NULL, NULL, NULL, &d), "from 0 to 16, got 17");
  ARGUMENT(dr_distribution_create_blocks(2, NULL, 1, grid, NULL, NULL, NULL, &d), "shape is null");
  ARGUMENT(dr_distribution_create_blocks(2, shape, 1, grid, NULL, NULL, NULL, NULL), "distribution is null");
  ARGUMENT(dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &d), "grid[1] must be at least 1");
  ARGUMENT(dr_distribution_create_tiles(2, vast, single, owner, &d), "larger than 64 bits");
  ARGUMENT(dr_distribution_create_tiles(2, shape, single, NULL, &d), "owner is null");
  GOOD(dr_distribution_create_tiles(2, empty, single, NULL, &d));
  GOOD(dr_distribution_free(&d));
  const int64_t offset[] = {0, 0, 4, 0}, extent[] = {4, 4, 2, 4}, owners[] = {0, 1};
  ARGUMENT(dr_distribution_create_boxes(2, shape, -1, offset, extent, owners, &d), "at least 0, got -1");
  ARGUMENT(dr_distribution_create_boxes(2, shape, 2, NULL, extent, owners, &d), "offset is null");
  ARGUMENT(dr_distribution_create_boxes(2, shape, 2, offset, NULL, owners, &d), "extent is null");
  ARGUMENT(dr_distribution_create_boxes(2, shape, 2, offset, extent, NULL, &d), "owner is null");
  GOOD(dr_distribution_create_boxes(2, shape, 2, offset, extent, owners, &d));
  GOOD(dr_distribution_local_ndim(d, 1, &ndim));
  GOOD(dr_distribution_local_count(d, 1, &count));
  GOOD(dr_distribution_owner(d, offset + 2, &rank));
  if (ndim != 2 || count != 8 || rank != 1) fprintf(stderr, "boxes: %d, %ld\n", ndim, (long)count), ++failures;
  GOOD(dr_distribution_free(&d));
  const int64_t wide[] = {(int64_t)1 << 62}, one[] = {1}, no_rank[] = {INT64_MAX, 0};
  dr_distribution* halo = NULL;
  GOOD(dr_distribution_create_blocks(1, wide, 1, one, NULL, NULL, NULL, &d));
  ARGUMENT(dr_distribution_create_halo(d, wide, NULL, &halo), "hold more elements than 64 bits count");
  GOOD(dr_distribution_free(&d));
  ARGUMENT(dr_distribution_create_blocks(2, shape, 1, one, NULL, NULL, no_rank, &d), "ranks of MPI are at most");
  ARGUMENT(dr_distribution_create_tiles(2, shape, shape, no_rank, &d), "ranks of MPI are at most");
  ARGUMENT(dr_distribution_create_boxes(2, shape, 1, offset, extent, no_rank, &d), "ranks of MPI are at most");
  ARGUMENT(dr_distribution_create_boxes(2, shape, INT64_MAX, offset, extent, owners, &d), "more than 4294967295 boxes");
  ARGUMENT(dr_distribution_local_count(NULL, 0, &count), "distribution is null");
  GOOD(dr_distribution_create_blocks(2, shape, 1, grid, NULL, NULL, NULL, &d));
  ARGUMENT(dr_distribution_local_shape(d, 0, NULL), "shape is null");
  ARGUMENT(dr_distribution_owner(d, outside, &rank), "");
  GOOD(dr_distribution_local_ndim(d, 0, &ndim));
  GOOD(dr_distribution_local_count(d, 1, &count));
  if (ndim != 2 || count != 12) fprintf(stderr, "%d dimensions, %ld elements\n", ndim, (long)count), ++failures;
  GOOD(dr_distribution_free(&d));
  const int64_t rows[] = {3, 1}, lengths[] = {DR_BLOCK_LENGTHS, DR_BLOCK_LENGTHS, 1, 0, 5, 4}, last[] = {5, 3};
  GOOD(dr_distribution_create_blocks(2, shape, 2, rows, NULL, lengths, NULL, &d));
  GOOD(dr_distribution_local_count(d, 2, &count));
  GOOD(dr_distribution_owner(d, last, &rank));
  if (count != 20 || rank != 2)
    fprintf(stderr, "lengths: %ld elements, rank %ld\n", (long)count, (long)rank), ++failures;
  dr_distribution* copy = d;
  GOOD(dr_distribution_free(&d));
  ARGUMENT(dr_distribution_free(&d), "is null");
  ARGUMENT(dr_distribution_free(&copy), "already freed?");
  ARGUMENT(dr_distribution_free(NULL), "is null");
}

static void misuse_plans(int rank, int size) {
  const int64_t grid[] = {size, 1}, other_shape[] = {6, 5}, small[] = {0, 4}, backward[] = {-4, 1};
  const int64_t vast[] = {(int64_t)1 << 60, 1}, longest[] = {INT64_MAX, INT64_MAX}, negative[] = {-1, 4};
  dr_problem problem;
  dr_distribution *rows = NULL, *other = NULL;
  dr_plan* plan = NULL;
  ARGUMENT(dr_problem_init(NULL), "problem is null");
  dr_problem_init(&problem);
  dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &rows);
  dr_distribution_create_blocks(2, other_shape, 2, grid, NULL, NULL, NULL, &other);
  ARGUMENT(dr_plan_create(NULL, MPI_COMM_WORLD, &plan), "problem is null");
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, NULL), "plan is null");
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "source is null");
  problem.source = problem.target = rows;
  EXPECT(dr_plan_create(rank > 0 ? &problem : NULL, MPI_COMM_WORLD, &plan),
         rank > 0 ? DR_ERROR_PLAN : DR_ERROR_ARGUMENT, rank > 0 ? "element_bytes must be set" : "problem is null");
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_NULL, &plan), "MPI_COMM_NULL");
#ifdef OPEN_MPI /* others cannot tell */
  ARGUMENT(dr_plan_create_f(&problem, 1 << 30, &plan), "comm is not a communicator");
#endif
  PLAN(&problem, "element_bytes must be set");
  problem.element_bytes = 8;
  problem.strategy = "Pakc";
  PLAN(&problem, "unknown strategy \"Pakc\"; there are Datatype");
  problem.strategy = "Pipelined";
  problem.options.chunk_bytes = 0;
  PLAN(&problem, "chunk_bytes must be from 1");
  dr_options_init(&problem.options);
  problem.target = other;
  PLAN(&problem, "one global shape");
  problem.target = rows;
  GOOD(dr_plan_create(&problem, MPI_COMM_WORLD, &plan));
  EXPECT(dr_plan_set_arrays(plan, small, NULL, NULL, NULL), DR_ERROR_PLAN, "its part of the distribution has shape");
  EXPECT(dr_plan_set_arrays(plan, NULL, backward, NULL, NULL), DR_ERROR_PLAN, "none may be negative");
  EXPECT(dr_plan_set_arrays(plan, NULL, vast, NULL, NULL), DR_ERROR_PLAN, "which lead out of the memory");
  EXPECT(dr_plan_set_arrays(plan, longest, NULL, NULL, NULL), DR_ERROR_PLAN, "larger than 64 bits hold");
  EXPECT(dr_plan_set_arrays(plan, negative, NULL, NULL, NULL), DR_ERROR_PLAN, "extents of a local array");
  double a[24] = {1, 2, 3}, b[24] = {0};
  dr_plan* without_array = NULL; /* an array that is null fails its plan */
  for (int target = 0; target < 2; ++target) {
    problem.source = problem.target = rows;
    GOOD(dr_plan_create(&problem, MPI_COMM_WORLD, &without_array));
    if (rank == 0) { /* the others own nothing */
      if (target)
        ARGUMENT(dr_plan_execute(without_array, a, NULL), "target is null, but elements");
      else
        ARGUMENT(dr_plan_execute(without_array, NULL, b), "source is null, but elements");
      EXPECT(dr_plan_execute(without_array, a, b), DR_ERROR_EXECUTE, "failed before");
    }
    GOOD(dr_plan_free(&without_array));
  }
  dr_distribution_free(&rows);
  dr_distribution_free(&other);
  GOOD(dr_plan_execute(plan, a, b)); /* the distributions are not needed any more */
  if (b[2] != 3) fprintf(stderr, "nothing was moved\n"), ++failures;
  dr_plan* copy = plan;
  GOOD(dr_plan_free(&plan));
  ARGUMENT(dr_plan_execute(plan, a, b), "plan is null");
  ARGUMENT(dr_plan_execute(copy, a, b), "already freed?");
  ARGUMENT(dr_plan_free(&copy), "already freed?");
}

/* Rows with a halo: what is refused, and an exchange in place, which wraps around. */
static void exchange_halo(int rank, int size) {
  const int64_t whole[] = {2 * size, 3}, grid[] = {size}, halo[] = {1, 0}, wide[] = {3, 0};
  const int periodic[] = {1, 0};
  dr_distribution *rows = NULL, *d = NULL, *again = NULL;
  dr_problem problem;
  dr_plan* plan = NULL;
  int64_t count = 0;
  double a[4][3];
  dr_distribution_create_blocks(2, whole, 1, grid, NULL, NULL, NULL, &rows);
  ARGUMENT(dr_distribution_create_halo(NULL, halo, NULL, &d), "owned is null");
  ARGUMENT(dr_distribution_create_halo(rows, NULL, NULL, &d), "halo is null");
  ARGUMENT(dr_distribution_create_halo(rows, wide, NULL, &d),
           "halo[0] must not be wider than a part, 2 elements along axis 0, got 3");
  GOOD(dr_distribution_create_halo(rows, halo, periodic, &d));
  ARGUMENT(dr_distribution_create_halo(d, halo, periodic, &again), "without a halo");
  GOOD(dr_distribution_local_count(d, rank, &count));
  dr_problem_init(&problem);
  problem.source = problem.target = d, problem.element_bytes = sizeof(double);
  GOOD(dr_plan_create(&problem, MPI_COMM_WORLD, &plan));
  for (int i = 0; i < 12; ++i) a[i / 3][i % 3] = i / 3 == 1 || i / 3 == 2 ? 2 * rank + i / 3 - 1 : -1;
  GOOD(dr_plan_execute(plan, a, a));
  for (int i = 0; i < 12; ++i)
    if (count != 12 || a[i / 3][i % 3] != (2 * rank + i / 3 - 1 + 2 * size) % (2 * size))
      fprintf(stderr, "halo: row %d holds %g\n", i / 3, a[i / 3][i % 3]), ++failures;
  dr_plan_free(&plan), dr_distribution_free(&rows), dr_distribution_free(&d);
}

/* The last rank asks for something else than the others. */
static void disagree(int rank, int size) {
  const int64_t grid[] = {size, 1}, turned[] = {1, size}, blocks[] = {1, 0};
  dr_distribution *rows = NULL, *columns = NULL, *cyclic = NULL;
  dr_plan* plan = NULL;
  dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &rows);
  dr_distribution_create_blocks(2, shape, 2, turned, NULL, NULL, NULL, &columns);
  dr_distribution_create_blocks(2, shape, 2, grid, NULL, blocks, NULL, &cyclic);
  for (int what = 0; what < 5; ++what) {
    const char* const said[] = {"element size in bytes is 8 on rank 0 and 4", "strategy is Pack on rank 0 and RMA",
                                "depth is 8 on rank 0 and 5", "source grid[0] is", "target block[0] is"};
    const int differs = rank == size - 1;
    dr_problem problem;
    dr_problem_init(&problem);
    problem.element_bytes = what == 0 && differs ? 4 : 8;
    problem.strategy = what == 1 && differs ? "RMA" : "Pack";
    if (what == 2 && differs) problem.options.depth = 5;
    problem.source = what == 3 && differs ? columns : rows;
    problem.target = what == 4 && differs ? cyclic : rows;
    PLAN(&problem, said[what]);
  }
  dr_distribution_free(&rows);
  dr_distribution_free(&columns);
  dr_distribution_free(&cyclic);
}

/* A box of a matrix to its place in a transposed one, and maps that fit no tensor. */
static void map_indices(int rank, int size) {
  const int64_t grid[] = {size, 1}, target_shape[] = {5, 9};
  const int64_t source_offset[] = {1, 0}, target_offset[] = {1, 2}, box[] = {5, 3};
  const int transposed[] = {1, 0};
  dr_problem problem;
  dr_distribution *source = NULL, *target = NULL;
  dr_plan* plan = NULL;
  dr_problem_init(&problem);
  dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &source);
  dr_distribution_create_blocks(2, target_shape, 2, grid, NULL, NULL, NULL, &target);
  problem.source = source, problem.target = target, problem.element_bytes = 8;
  problem.axes = transposed;
  problem.region_shape = box;
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "a region needs region_source_offset");
  problem.region_source_offset = source_offset, problem.region_target_offset = target_offset;
  dr_problem reshaped = problem;
  reshaped.reshape = 1;
  ARGUMENT(dr_plan_create(&reshaped, MPI_COMM_WORLD, &plan), "a region and a reshape cannot be combined");
  reshaped.region_shape = reshaped.region_source_offset = reshaped.region_target_offset = NULL;
  PLAN(&reshaped, "has 24 elements, but the target's shape");
  GOOD(dr_plan_create(&problem, MPI_COMM_WORLD, &plan));
  double a[24], b[45];
  int64_t rows[2], columns[2];
  dr_distribution_local_shape(source, rank, rows);
  dr_distribution_local_shape(target, rank, columns);
  const int64_t first_row = rank * ((shape[0] + size - 1) / size), first = rank * ((target_shape[0] + size - 1) / size);
  for (int64_t i = 0; i < rows[0] * rows[1]; ++i) a[i] = (double)(first_row * shape[1] + i);
  for (int i = 0; i < 45; ++i) b[i] = -1;
  GOOD(dr_plan_execute(plan, a, b));
  for (int64_t i = 0; i < columns[0]; ++i)
    for (int64_t j = 0; j < columns[1]; ++j) {
      const int64_t column = first + i - 1, row = j - 2 + 1;
      const int inside = column >= 0 && column < box[1] && row >= 1 && row < 1 + box[0];
      if (b[i * columns[1] + j] != (inside ? (double)(row * shape[1] + column) : -1.)) ++failures;
    }
  dr_plan_free(&plan);
  dr_distribution_free(&source);
  dr_distribution_free(&target);
}

/* Conversion, transfers that are started, and several tensors at once; each right, and each in a wrong way. */
static void compute_and_start(int rank, int size) {
  const int64_t grid[] = {size, 1};
  dr_problem problems[2];
  dr_distribution* rows = NULL;
  dr_plan *plan = NULL, *joint = NULL;
  dr_request* request = NULL;
  double a[24] = {1, 2, 3}, c[24] = {0};
  float b[24] = {0};
  int64_t count = 0;
  int done = -1, level = 0;
  dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &rows);
  dr_distribution_local_count(rows, rank, &count);
  for (int i = 0; i < 2; ++i) {
    dr_problem_init(&problems[i]);
    problems[i].source = problems[i].target = rows, problems[i].element_bytes = 8;
  }
  problems[0].operation.source_type = DR_FLOAT64, problems[0].operation.target_type = 99;
  EXPECT(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan), DR_ERROR_PLAN,
         "target_type must be from 0 to 13, got 99");
  problems[0].operation.target_type = DR_FLOAT32, problems[0].operation.alpha[0] = -2;
  problems[0].element_bytes = 4;
  EXPECT(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan), DR_ERROR_PLAN, "float64 have 8 bytes, not 4");
  problems[0].element_bytes = 8;
  GOOD(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan));
  ARGUMENT(dr_plan_start(plan, a, b, 7, &request), "progress must be");
  ARGUMENT(dr_plan_start(plan, a, b, DR_PROGRESS_CALLS, NULL), "request is null");
  GOOD(dr_plan_start(plan, a, b, DR_PROGRESS_CALLS, &request));
  ARGUMENT(dr_plan_execute(plan, a, b), "under way");
  ARGUMENT(dr_plan_free(&plan), "under way");
  ARGUMENT(dr_request_test(request, NULL), "done is null");
  GOOD(dr_request_test(request, &done));
  dr_request* copy = request;
  GOOD(dr_request_wait(&request));
  ARGUMENT(dr_request_wait(&request), "is null");
  ARGUMENT(dr_request_wait(&copy), "not a valid handle");
  if (count > 1 && (b[0] != -2.f || b[1] != -4.f)) fprintf(stderr, "not converted: %g %g\n", b[0], b[1]), ++failures;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE)
    ARGUMENT(dr_plan_start(plan, a, b, DR_PROGRESS_THREAD, &request), "MPI_THREAD_MULTIPLE");
  GOOD(dr_plan_free(&plan));

  ARGUMENT(dr_plan_create_joint(0, problems, MPI_COMM_WORLD, &joint), "count must be at least 1");
  ARGUMENT(dr_plan_create_joint(2, NULL, MPI_COMM_WORLD, &joint), "problems is null");
  problems[1].strategy = "Pack";
  EXPECT(dr_plan_create_joint(2, problems, MPI_COMM_WORLD, &joint), DR_ERROR_PLAN, "got Hierarchical and Pack");
  problems[0].strategy = problems[1].strategy = "Hierarchical";
  if (size > 1)
    EXPECT(dr_plan_create_joint(1 + (rank == 0), problems, MPI_COMM_WORLD, &joint), DR_ERROR_PLAN,
           "number of tensors is 2 on rank 0");
  const int twice[] = {1, 1};
  if (rank == size - 1) problems[1].axes = twice;
  EXPECT(dr_plan_create_joint(2, problems, MPI_COMM_WORLD, &joint), DR_ERROR_PLAN, "each of the 2 dimensions once");
  problems[1].axes = NULL;
  problems[1].operation.source_type = problems[1].operation.target_type = DR_FLOAT64;
  problems[1].operation.op = DR_SUM;
  problems[1].options.chunk_bytes = 0; /* of all tensors, the options of the first one count */
  GOOD(dr_plan_create_joint(2, problems, MPI_COMM_WORLD, &joint));
  const void* sources[] = {a, a};
  void* targets[] = {b, c};
  if (count > 0) ARGUMENT(dr_plan_execute(joint, NULL, targets), "source is null");
  b[0] = 0;
  GOOD(dr_plan_execute(joint, sources, targets));
  if (count > 1 && (b[0] != -2.f || c[1] != 2)) fprintf(stderr, "not moved together\n"), ++failures;
  b[0] = 0;
  GOOD(dr_plan_start(joint, sources, targets, DR_PROGRESS_CALLS, &request));
  GOOD(dr_request_wait(&request));
  if (count > 1 && b[0] != -2.f) fprintf(stderr, "not moved together after a start\n"), ++failures;
  ARGUMENT(dr_plan_set_arrays(joint, NULL, NULL, NULL, NULL), "several tensors");
  GOOD(dr_plan_free(&joint));
  dr_distribution_free(&rows);
}

/* What is said of a transfer that fails while it is tested is said by the wait, too, which frees the request. */
static void fail_a_transfer(int size) {
  enum { rows = 6, columns = 12 };
  static double a[rows * columns], b[rows * columns]; /* where messages may arrive yet */
  const int64_t whole[] = {rows, columns}, grid[] = {size, 1}, turned[] = {1, size};
  dr_problem problem;
  dr_distribution *source = NULL, *target = NULL;
  dr_plan* plan = NULL;
  dr_request* request = NULL;
  int done = -1;
  dr_problem_init(&problem);
  dr_distribution_create_blocks(2, whole, 2, grid, NULL, NULL, NULL, &source);
  dr_distribution_create_blocks(2, whole, 2, turned, NULL, NULL, NULL, &target);
  problem.source = source, problem.target = target, problem.element_bytes = 8, problem.strategy = "Pack";
  GOOD(dr_plan_create(&problem, MPI_COMM_WORLD, &plan));
  GOOD(dr_plan_start(plan, a, b, DR_PROGRESS_CALLS, &request));
  MPI_Barrier(MPI_COMM_WORLD); /* the failure of one rank would be an error of another one's start */
  testsome_fails = 1, waits_within = &request;
  EXPECT(dr_request_test(request, &done), DR_ERROR_EXECUTE, "MPI_Testsome failed");
  testsome_fails = 0, waits_within = NULL;
  ARGUMENT(dr_plan_free(&plan), "under way");
  EXPECT(dr_plan_execute(plan, a, b), DR_ERROR_EXECUTE, "failed before");
  EXPECT(dr_request_test(request, &done), DR_ERROR_EXECUTE, "MPI_Testsome failed");
  EXPECT(dr_request_wait(&request), DR_ERROR_EXECUTE, "MPI_Testsome failed");
  ARGUMENT(dr_request_wait(&request), "is null");
  GOOD(dr_plan_free(&plan));
  dr_distribution_free(&source);
  dr_distribution_free(&target);
}

/* A group on each side, which have no ranks in common. */
static void use_an_intercommunicator(int rank) {
  MPI_Comm group, both;
  dr_problem problem;
  dr_plan* plan = NULL;
  dr_problem_init(&problem);
  MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &group);
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 0, &both);
  ARGUMENT(dr_plan_create(&problem, both, &plan), "comm is an intercommunicator");
  MPI_Comm_free(&both);
  MPI_Comm_free(&group);
}

static dr_plan* plan_of_rows(int size, const char* strategy, MPI_Comm comm) {
  const int64_t whole[] = {6, 12}, grid[] = {size, 1}, turned[] = {1, size};
  dr_distribution *source = NULL, *target = NULL;
  dr_problem problem;
  dr_plan* plan = NULL;
  dr_distribution_create_blocks(2, whole, 2, grid, NULL, NULL, NULL, &source);
  dr_distribution_create_blocks(2, whole, 2, turned, NULL, NULL, NULL, &target);
  dr_problem_init(&problem);
  problem.source = source, problem.target = target, problem.element_bytes = 8, problem.strategy = strategy;
  GOOD(dr_plan_create(&problem, comm, &plan));
  dr_distribution_free(&source);
  dr_distribution_free(&target);
  return plan;
}

/* A plan with a window is freed on rank 0 only, before its communicator, or has one that is not freed: no rank waits
   for those that keep the plan. */
static void free_on_one_rank(int rank, int size) {
  for (int freed = 0; freed < 2; ++freed) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    dr_plan* plan = plan_of_rows(size, "RMA", comm);
    if (rank == 0) GOOD(dr_plan_free(&plan));
    if (!freed) continue;
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0) GOOD(dr_plan_free(&plan));
  }
}

/* A forked child frees a plan: memory and MPI objects stay with its parent. */
static void free_in_a_child(int size) {
  int status = -1;
  dr_plan* plan = plan_of_rows(size, "Datatype", MPI_COMM_WORLD);
  fflush(NULL);
  const pid_t child = fork();
  types_freed = 0;
  if (child == 0) _exit(dr_plan_free(&plan) != DR_SUCCESS || types_freed > 0);
  waitpid(child, &status, 0);
  GOOD(dr_plan_free(&plan));
  if (status != 0 || types_freed == 0) fprintf(stderr, "%d, %d types freed\n", status, types_freed), ++failures;
}

/* After the end of main(), when the thread's objects are gone. */
static void at_end(void) {
  if (*dr_error()) fprintf(stderr, "at the end: %s\n", dr_error()), ++failures;
  ARGUMENT(dr_plan_free(NULL), "plan is null");
  if (failures > 0) _exit(1);
}

static void misuse_memory(void) {
  void *memory = NULL, *elsewhere = &memory;
  ARGUMENT(dr_memory_create(-1, &memory), "must be 0 or more");
  EXPECT(dr_memory_create(INT64_MAX / 2, &memory), DR_ERROR_MEMORY, "node-shared memory");
  EXPECT(dr_memory_create(INT64_MAX, &memory), DR_ERROR_MEMORY, "node-shared memory");
  GOOD(dr_memory_create(0, &memory));
  GOOD(dr_memory_free(&memory));
  ARGUMENT(dr_memory_free(&elsewhere), "not a valid handle");
}

/* Buffers that ranks 0 and 1 of 3 have no memory for: rank 2, which takes no part, gets no plan, either. */
static void run_out_of_memory(int rank) {
  const int64_t vast[] = {(int64_t)1 << 24, (int64_t)1 << 24}, strides[] = {(int64_t)1 << 25, 1};
  const int64_t grid[] = {1, 1}, first[] = {0}, second[] = {1};
  const char* said = rank < 2 ? "out of memory" : "on rank 0: out of memory";
  const int code = rank < 2 ? DR_ERROR_MEMORY : DR_ERROR_PLAN;
  dr_problem problem;
  dr_distribution *source = NULL, *target = NULL;
  dr_plan* plan = NULL;
  dr_problem_init(&problem);
  dr_distribution_create_blocks(2, vast, 2, grid, NULL, NULL, first, &source);
  dr_distribution_create_blocks(2, vast, 2, grid, NULL, NULL, second, &target);
  problem.source = source, problem.target = target, problem.element_bytes = 1;
  problem.source_strides = problem.target_strides = strides;
  problem.strategy = "Pack";
  EXPECT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), code, said);
  EXPECT(dr_plan_create_joint(1, &problem, MPI_COMM_WORLD, &plan), code, said);
  problem.strategy = "Hierarchical";
  problem.options.chunk_bytes = problem.options.max_message_bytes = INT32_MAX;
  problem.options.depth = 1 << 16;
  setenv("DACE_REDIST_NODE_RANKS", "1", 1); /* each rank is a node: messages go through buffers */
  EXPECT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), code, said);
  unsetenv("DACE_REDIST_NODE_RANKS");
  dr_distribution_free(&source);
  dr_distribution_free(&target);
}

static void misuse_messages(int size) {
  const int64_t two = 2, step = 1, nine[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  dr_block block = {size, 1, 0, &two, &step};
  dr_problem problem;
  dr_plan* plan = NULL;
  dr_problem_init(&problem);
  problem.element_bytes = 8;
  ARGUMENT(dr_plan_create_messages(NULL, 0, NULL, 0, NULL, MPI_COMM_WORLD, &plan), "problem is null");
  ARGUMENT(dr_plan_create_messages(&problem, 0, NULL, 0, NULL, MPI_COMM_WORLD, NULL), "plan is null");
  ARGUMENT(dr_plan_create_messages(&problem, 1, NULL, 0, NULL, MPI_COMM_WORLD, &plan), "sends is null");
  ARGUMENT(dr_plan_create_messages(&problem, -1, NULL, 0, NULL, MPI_COMM_WORLD, &plan),
           "the number of sends must be at least 0, got -1");
  ARGUMENT(dr_plan_create_messages(&problem, 0, NULL, 1, &block, MPI_COMM_WORLD, &plan),
           "receives[0]: peer must be a rank of the communicator");
  block.peer = 0, block.ndim = 11, block.counts = block.strides = nine;
  ARGUMENT(dr_plan_create_messages(&problem, 1, &block, 0, NULL, MPI_COMM_WORLD, &plan),
           "ndim must be from 0 to 10, got 11");
  block.ndim = 1, block.counts = NULL;
  ARGUMENT(dr_plan_create_messages(&problem, 1, &block, 0, NULL, MPI_COMM_WORLD, &plan),
           "counts and strides must not be null");
  const int64_t longest = INT64_MAX;
  block.counts = &two, block.strides = &longest;
  ARGUMENT(dr_plan_create_messages(&problem, 1, &block, 0, NULL, MPI_COMM_WORLD, &plan), "lead out of the memory");
  block.counts = &longest, block.strides = &step;
  ARGUMENT(dr_plan_create_messages(&problem, 1, &block, 0, NULL, MPI_COMM_WORLD, &plan), "lead out of the memory");
  problem.reshape = 1;
  ARGUMENT(dr_plan_create_messages(&problem, 0, NULL, 0, NULL, MPI_COMM_WORLD, &plan),
           "messages have their own layouts");
  problem.reshape = 0, problem.operation.op = DR_SUM;
  ARGUMENT(dr_plan_create_messages(&problem, 0, NULL, 0, NULL, MPI_COMM_WORLD, &plan), "op must be DR_NO_OP");
}

static void misuse_alltoallw(int size) {
  const int none[8] = {0}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, negative[8] = {-1};
  MPI_Datatype null[8], doubles[8];
  double source = 3, target = 0;
  dr_problem problem;
  dr_plan* plan = NULL;
  for (int i = 0; i < 8; ++i) null[i] = MPI_DATATYPE_NULL, doubles[i] = MPI_DOUBLE;
  dr_problem_init(&problem);
  problem.operation.alpha[0] = 2;
  problem.operation.source_type = problem.operation.target_type = DR_FLOAT64;
  ARGUMENT(dr_plan_create_alltoallw(&problem, none, none, null, none, none, null, MPI_COMM_WORLD, &plan),
           "datatypes are moved as bytes");
  ARGUMENT(dr_plan_create_alltoallw(NULL, NULL, none, null, none, none, null, MPI_COMM_WORLD, &plan),
           "sendcounts, sdispls and sendtypes is null");
  ARGUMENT(dr_plan_create_alltoallw(NULL, none, none, null, none, none, NULL, MPI_COMM_WORLD, &plan),
           "recvcounts, rdispls and recvtypes is null");
  ARGUMENT(dr_plan_create_alltoallw(NULL, negative, none, null, none, none, null, MPI_COMM_WORLD, &plan),
           "the count of rank 0 must be at least 0, got -1");
  ARGUMENT(dr_plan_create_alltoallw(NULL, one, none, null, none, none, null, MPI_COMM_WORLD, &plan),
           "MPI_DATATYPE_NULL, but its count is 1");
  EXPECT(dr_plan_create_alltoallw(NULL, one, none, doubles, none, none, null, MPI_COMM_WORLD, &plan), DR_ERROR_PLAN,
         "sends 8 bytes to rank 0, which receives 0");
  GOOD(dr_plan_create_alltoallw(NULL, none, none, null, none, none, null, MPI_COMM_WORLD, &plan));
  GOOD(dr_plan_execute(plan, NULL, NULL));
  ARGUMENT(dr_plan_set_arrays(plan, NULL, NULL, NULL, NULL), "the plan is of messages");
  GOOD(dr_plan_free(&plan));
  if (size > 1) return; /* a failed transfer leaves other ranks waiting for a while */
  GOOD(dr_plan_create_alltoallw(NULL, one, none, doubles, one, none, doubles, MPI_COMM_WORLD, &plan));
  GOOD(dr_plan_execute(plan, &source, &target));
  if (target != 3) ++failures;
  ARGUMENT(dr_plan_execute(plan, NULL, &target), "source is null");
  GOOD(dr_plan_free(&plan));
}

int main(int argc, char** argv) {
  int rank, size, all = 0;
  dr_problem problem;
  dr_plan* plan = NULL;
  dr_problem_init(&problem);
  atexit(at_end);
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "MPI is not initialized");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  misuse_distributions();
  misuse_plans(rank, size);
  misuse_messages(size);
  misuse_alltoallw(size);
  if (size > 1) disagree(rank, size);
  exchange_halo(rank, size);
  map_indices(rank, size);
  compute_and_start(rank, size);
  if (size > 1) fail_a_transfer(size);
  if (size > 1) use_an_intercommunicator(rank);
  free_on_one_rank(rank, size);
  if (size > 1) free_in_a_child(size);
  misuse_memory();
  if (size == 3) run_out_of_memory(rank);
  if (strlen(dr_version()) == 0) ++failures;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d failures\n", all);
  MPI_Finalize();
  return all != 0;
}
