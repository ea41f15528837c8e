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

static int yields = 0;
extern long __sysconf(int name);

int sched_yield(void) { return ++yields, 0; }

/* As if all ranks shared a core. */
long sysconf(int name) { return name == _SC_NPROCESSORS_ONLN ? 1 : __sysconf(name); }

static int types_freed = 0;

int MPI_Type_free(MPI_Datatype* type) {
  ++types_freed;
  return PMPI_Type_free(type);
}

static const int64_t shape[] = {6, 4};
static dr_plan* plan = NULL;

/* A matrix in blocks, over a grid of ranks. */
static dr_distribution* blocks(const int64_t* whole, int64_t rows, int64_t columns) {
  const int64_t grid[] = {rows, columns};
  dr_distribution* made = NULL;
  GOOD(dr_distribution_create_blocks(2, whole, 2, grid, NULL, NULL, NULL, &made));
  return made;
}

static dr_problem problem_of(const dr_distribution* source, const dr_distribution* target, int64_t element_bytes) {
  dr_problem problem;
  dr_problem_init(&problem);
  problem.source = source, problem.target = target, problem.element_bytes = element_bytes;
  return problem;
}

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
  const int64_t wide[] = {(int64_t)1 << 62}, one[] = {1}, no_rank[] = {INT64_MAX, 0};
  dr_distribution* halo = NULL;
  GOOD(dr_distribution_create_blocks(1, wide, 1, one, NULL, NULL, NULL, &d));
  ARGUMENT(dr_distribution_create_halo(d, wide, NULL, &halo), "hold more elements than 64 bits count");
  GOOD(dr_distribution_free(&d));
  const int64_t margins[] = {1, 0}, wider[] = {4, 0};
  d = blocks(shape, 2, 1);
  ARGUMENT(dr_distribution_create_halo(NULL, margins, NULL, &halo), "owned is null");
  ARGUMENT(dr_distribution_create_halo(d, NULL, NULL, &halo), "halo is null");
  ARGUMENT(dr_distribution_create_halo(d, wider, NULL, &halo),
           "halo[0] must not be wider than a part, 3 elements along axis 0, got 4");
  GOOD(dr_distribution_create_halo(d, margins, NULL, &halo));
  GOOD(dr_distribution_free(&d));
  ARGUMENT(dr_distribution_create_halo(halo, margins, NULL, &d), "without a halo");
  GOOD(dr_distribution_free(&halo));
  ARGUMENT(dr_distribution_create_blocks(2, shape, 1, one, NULL, NULL, no_rank, &d), "ranks of MPI are at most");
  ARGUMENT(dr_distribution_create_tiles(2, shape, shape, no_rank, &d), "ranks of MPI are at most");
  ARGUMENT(dr_distribution_create_boxes(2, shape, 1, offset, extent, no_rank, &d), "ranks of MPI are at most");
  ARGUMENT(dr_distribution_create_boxes(2, shape, INT64_MAX, offset, extent, owners, &d), "more than 4294967295 boxes");
  ARGUMENT(dr_distribution_local_count(NULL, 0, &count), "distribution is null");
  GOOD(dr_distribution_create_blocks(0, NULL, 0, NULL, NULL, NULL, NULL, &d));
  GOOD(dr_distribution_local_ndim(d, 1, &ndim)); /* rank 1 has no element of a scalar: shape (0,) */
  GOOD(dr_distribution_local_shape(d, 1, outside));
  if (ndim != 1 || outside[0] != 0) fprintf(stderr, "scalar: %d, %ld\n", ndim, (long)outside[0]), ++failures;
  outside[0] = 6;
  GOOD(dr_distribution_free(&d));
  GOOD(dr_distribution_create_blocks(2, shape, 1, grid, NULL, NULL, NULL, &d));
  ARGUMENT(dr_distribution_local_shape(d, 0, NULL), "shape is null");
  ARGUMENT(dr_distribution_local_ndim(d, -1, &ndim), "rank must be at least 0, got -1");
  ARGUMENT(dr_distribution_local_shape(d, INT32_MIN, outside), "rank must be at least 0, got -2147483648");
  ARGUMENT(dr_distribution_local_count(d, -1, &count), "rank must be at least 0, got -1");
  ARGUMENT(dr_distribution_owner(d, outside, &rank), "");
  GOOD(dr_distribution_free(&d));
  const int64_t rows[] = {3, 1}, lengths[] = {DR_BLOCK_LENGTHS, DR_BLOCK_LENGTHS, 1, 0, 5, 4}, last[] = {5, 3};
  GOOD(dr_distribution_create_blocks(2, shape, 2, rows, NULL, lengths, NULL, &d));
  GOOD(dr_distribution_local_count(d, 2, &count));
  GOOD(dr_distribution_owner(d, last, &rank));
  if (count != 20 || rank != 2) fprintf(stderr, "%ld elements, rank %ld\n", (long)count, (long)rank), ++failures;
  dr_distribution* copy = d;
  GOOD(dr_distribution_free(&d));
  ARGUMENT(dr_distribution_free(&d), "is null");
  ARGUMENT(dr_distribution_free(&copy), "already freed?");
  ARGUMENT(dr_distribution_free(NULL), "is null");
}

static void misuse_plans(int rank, int size) {
  const int64_t other_shape[] = {6, 5}, small[] = {0, 4}, backward[] = {-4, 1}, negative[] = {-1, 4};
  const int64_t vast[] = {(int64_t)1 << 60, 1}, longest[] = {INT64_MAX, INT64_MAX};
  dr_distribution *rows = blocks(shape, size, 1), *other = blocks(other_shape, size, 1);
  dr_problem problem = problem_of(NULL, NULL, 0);
  ARGUMENT(dr_problem_init(NULL), "problem is null");
  ARGUMENT(dr_plan_create(NULL, MPI_COMM_WORLD, &plan), "problem is null");
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, NULL), "plan is null");
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "source is null");
  problem.source = problem.target = rows;
  EXPECT(dr_plan_create(rank > 0 ? &problem : NULL, MPI_COMM_WORLD, &plan),
         rank > 0 ? DR_ERROR_PLAN : DR_ERROR_ARGUMENT, rank > 0 ? "element_bytes must be set" : "problem is null");
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_NULL, &plan), "MPI_COMM_NULL");
#ifdef OPEN_MPI /* others cannot tell */
  ARGUMENT(dr_plan_create(&problem, (MPI_Comm)0, &plan), "comm is not a communicator");
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
    const char* said = target ? "target is null, but elements" : "source is null, but elements";
    GOOD(dr_plan_create(&problem, MPI_COMM_WORLD, &without_array));
    if (rank == 0) { /* the others own nothing */
      ARGUMENT(dr_plan_execute(without_array, target ? a : NULL, target ? NULL : b), said);
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

/* The last rank asks for something else than the others. */
static void disagree(int rank, int size) {
  const int64_t grid[] = {size, 1}, block[] = {1, 0};
  dr_distribution *rows = blocks(shape, size, 1), *columns = blocks(shape, 1, size), *cyclic = NULL;
  dr_distribution_create_blocks(2, shape, 2, grid, NULL, block, NULL, &cyclic);
  for (int what = 0; what < 5; ++what) {
    const char* const said[] = {"element size in bytes: 8 on rank 0 and 4", "strategy: Pack on rank 0 and RMA",
                                "depth: 8 on rank 0 and 5", "source grid[0]: ", "target block[0]: "};
    const int differs = rank == size - 1;
    dr_problem problem = problem_of(what == 3 && differs ? columns : rows, what == 4 && differs ? cyclic : rows,
                                    what == 0 && differs ? 4 : 8);
    problem.strategy = what == 1 && differs ? "RMA" : "Pack";
    if (what == 2 && differs) problem.options.depth = 5;
    PLAN(&problem, said[what]);
  }
  dr_distribution_free(&rows);
  dr_distribution_free(&columns);
  dr_distribution_free(&cyclic);
}

/* Maps that fit no tensor. */
static void map_indices(int size) {
  const int64_t source_offset[] = {1, 0}, target_offset[] = {1, 2}, box[] = {5, 3}, target_shape[] = {5, 9};
  dr_distribution *source = blocks(shape, size, 1), *target = blocks(target_shape, size, 1);
  dr_problem problem = problem_of(source, target, 8);
  problem.region_shape = box;
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "a region needs region_source_offset");
  problem.region_source_offset = source_offset, problem.region_target_offset = target_offset;
  problem.reshape = 1;
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "a region and a reshape cannot be combined");
  problem.region_shape = problem.region_source_offset = problem.region_target_offset = NULL;
  PLAN(&problem, "has 24 elements, but the target's shape");
  dr_distribution_free(&source);
  dr_distribution_free(&target);
}

/* Conversion, transfers that are started, and several tensors at once, in wrong ways. */
static void compute_and_start(int rank, int size) {
  dr_distribution* rows = blocks(shape, size, 1);
  dr_problem problems[] = {problem_of(rows, rows, 8), problem_of(rows, rows, 8)};
  dr_plan* joint = NULL;
  dr_request* request = NULL;
  double a[24] = {1, 2, 3}, c[24] = {0};
  const int64_t zeros[] = {0, 0};
  float b[24] = {0};
  int64_t count = 0;
  int done = -1, level = 0;
  dr_distribution_local_count(rows, rank, &count);
  problems[0].operation.source_type = DR_FLOAT64, problems[0].operation.target_type = 99;
  EXPECT(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan), DR_ERROR_PLAN,
         "target_type must be from 0 to 15, got 99");
  problems[0].operation.target_type = DR_FLOAT64, problems[0].element_bytes = 4;
  EXPECT(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan), DR_ERROR_PLAN, "float64 have 8 bytes, not 4");
  problems[0].operation.target_type = DR_FLOAT32, problems[0].operation.alpha[0] = -2;
  EXPECT(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan), DR_ERROR_PLAN, "float64 have 8 bytes, not 4");
  problems[0].element_bytes = 8;
  problems[0].target_strides = zeros;
  EXPECT(dr_plan_create(&problems[0], MPI_COMM_WORLD, &plan), DR_ERROR_PLAN, "by which elements share memory");
  problems[0].target_strides = NULL;
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
           "number of tensors: 2 on rank 0");
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
  GOOD(dr_plan_execute(joint, sources, targets));
  ARGUMENT(dr_plan_set_arrays(joint, NULL, NULL, NULL, NULL), "several tensors");
  GOOD(dr_plan_free(&joint));
  dr_distribution_free(&rows);
}

static dr_plan* plan_of_rows(int size, const char* strategy, MPI_Comm comm) {
  const int64_t whole[] = {6, 12};
  dr_distribution *source = blocks(whole, size, 1), *target = blocks(whole, 1, size);
  dr_problem problem = problem_of(source, target, 8);
  dr_plan* made = NULL;
  problem.strategy = strategy;
  GOOD(dr_plan_create(&problem, comm, &made));
  dr_distribution_free(&source);
  dr_distribution_free(&target);
  return made;
}

/* A test that finds nothing done leaves the core to other ranks, whatever MPI does. */
static void leave_the_core(int rank) {
  static double a[72], b[72];
  dr_request* request = NULL;
  int done = 0;
  if (rank > 0) MPI_Barrier(MPI_COMM_WORLD);
  GOOD(dr_plan_start(plan, a, b, DR_PROGRESS_CALLS, &request));
  yields = 0;
  if (rank == 0) {
    GOOD(dr_request_test(request, &done));
    if (done || yields == 0) fprintf(stderr, "done: %d, %d yields\n", done, yields), ++failures;
    MPI_Barrier(MPI_COMM_WORLD);
  }
  GOOD(dr_request_wait(&request));
}

/* What is said of a transfer that fails while it is tested is said by the wait, too, which frees the request. */
static void fail_a_transfer(int size) {
  static double a[72], b[72]; /* where messages may arrive yet */
  dr_request* request = NULL;
  int done = -1;
  plan = plan_of_rows(size, "Pack", MPI_COMM_WORLD);
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
}

/* Calls after MPI_Finalize, with a transfer that was found complete but not waited for. */
static void outlive_mpi(dr_request* request) {
  static double a[72], b[72];
  int done = 0;
  const char* const said = "MPI is not initialized (by MPI_Init: a session is not enough), or was finalized";
  ARGUMENT(dr_request_test(request, &done), said);
  ARGUMENT(dr_request_wait(&request), said);
  ARGUMENT(dr_plan_execute(plan, a, b), said);
  ARGUMENT(dr_plan_start(plan, a, b, DR_PROGRESS_CALLS, &request), said);
  GOOD(dr_plan_free(&plan));
}

/* A group on each side, which have no ranks in common. */
static void use_an_intercommunicator(int rank) {
  MPI_Comm group, both;
  dr_problem problem = problem_of(NULL, NULL, 8);
  MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &group);
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 0, &both);
  ARGUMENT(dr_plan_create_messages(&problem, 0, NULL, 0, NULL, both, &plan), "comm is an intercommunicator");
  EXPECT(dr_plan_create(&problem, both, &plan), DR_ERROR_PLAN, "but none does");
  MPI_Comm_free(&both);
  MPI_Comm_free(&group);
}

/* A plan with a window is freed on rank 0 only, before its communicator, or has one that is not freed: no rank waits
   for those that keep the plan. */
static void free_on_one_rank(int rank, int size) {
  for (int freed = 0; freed < 2; ++freed) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    plan = plan_of_rows(size, "RMA", comm);
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
  plan = plan_of_rows(size, "Datatype", MPI_COMM_WORLD);
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
  dr_distribution *source = NULL, *target = NULL;
  dr_distribution_create_blocks(2, vast, 2, grid, NULL, NULL, first, &source);
  dr_distribution_create_blocks(2, vast, 2, grid, NULL, NULL, second, &target);
  dr_problem problem = problem_of(source, target, 1);
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

#define MESSAGES(sends, send, receives, receive, said) \
  ARGUMENT(dr_plan_create_messages(&problem, sends, send, receives, receive, MPI_COMM_WORLD, &plan), said)

static void misuse_messages(void) {
  const int64_t two = 2, step = 1, longest = INT64_MAX;
  dr_block block = {0, 1, 0, NULL, &step};
  dr_problem problem = problem_of(NULL, NULL, 8);
  ARGUMENT(dr_plan_create_messages(NULL, 0, NULL, 0, NULL, MPI_COMM_WORLD, &plan), "problem is null");
  ARGUMENT(dr_plan_create_messages(&problem, 0, NULL, 0, NULL, MPI_COMM_WORLD, NULL), "plan is null");
  MESSAGES(1, NULL, 0, NULL, "sends is null");
  MESSAGES(-1, NULL, 0, NULL, "the number of sends must be at least 0, got -1");
  MESSAGES(1, &block, 0, NULL, "counts and strides must not be null");
  block.counts = &two, block.strides = &longest;
  MESSAGES(1, &block, 0, NULL, "lead out of the memory");
  block.counts = &longest, block.strides = &step;
  MESSAGES(1, &block, 0, NULL, "lead out of the memory");
  problem.reshape = 1;
  MESSAGES(0, NULL, 0, NULL, "messages have their own layouts");
  problem.reshape = 0, problem.operation.op = DR_SUM;
  MESSAGES(0, NULL, 0, NULL, "op must be DR_NO_OP");
}

#define ALLTOALLW(problem, counts, send, target_types, said) \
  ARGUMENT(dr_plan_create_alltoallw(problem, counts, none, send, none, none, target_types, MPI_COMM_WORLD, &plan), said)

static void misuse_alltoallw(int size) {
  const int none[8] = {0}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, negative[8] = {-1};
  MPI_Datatype null[8], doubles[8];
  double source = 3, target = 0;
  dr_problem problem = problem_of(NULL, NULL, 0);
  for (int i = 0; i < 8; ++i) null[i] = MPI_DATATYPE_NULL, doubles[i] = MPI_DOUBLE;
  problem.operation.alpha[0] = 2;
  problem.operation.source_type = problem.operation.target_type = DR_FLOAT64;
  ALLTOALLW(&problem, none, null, null, "datatypes are moved as bytes");
  ALLTOALLW(NULL, NULL, null, null, "sendcounts, sdispls and sendtypes is null");
  ALLTOALLW(NULL, none, null, NULL, "recvcounts, rdispls and recvtypes is null");
  ALLTOALLW(NULL, negative, null, null, "the count of rank 0 must be at least 0, got -1");
  ALLTOALLW(NULL, one, null, null, "MPI_DATATYPE_NULL, but its count is 1");
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
  dr_problem problem = problem_of(NULL, NULL, 0);
  atexit(at_end);
  ARGUMENT(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "MPI is not initialized");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  misuse_distributions();
  misuse_plans(rank, size);
  misuse_messages();
  misuse_alltoallw(size);
  if (size > 1) disagree(rank, size);
  map_indices(size);
  compute_and_start(rank, size);
  if (size > 1) fail_a_transfer(size);
  if (size > 1) use_an_intercommunicator(rank);
  free_on_one_rank(rank, size);
  if (size > 1) free_in_a_child(size);
  misuse_memory();
  if (size == 3) run_out_of_memory(rank);
  if (strlen(dr_version()) == 0) ++failures;
  static double a[72], b[72];
  int done = 0;
  dr_plan* complete = plan_of_rows(size, "Hierarchical", MPI_COMM_WORLD);
  dr_request* request = NULL;
  plan = plan_of_rows(size, "Hierarchical", MPI_COMM_WORLD);
  if (size > 1) leave_the_core(rank);
  GOOD(dr_plan_start(complete, a, b, DR_PROGRESS_CALLS, &request));
  while (!done) GOOD(dr_request_test(request, &done));
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d failures\n", all);
  MPI_Finalize();
  outlive_mpi(request);
  return all != 0;
}
