/* Random redistributions between the groups of an intercommunicator, and files of random distributions, against
   ordinary redistributions within a group; errors, which every rank gets. Run: groups_and_files FOLDER. Element i of a
   whole array, in C order, is i. FOLDER has the arrays of tests/mpi/test_languages.py, which reads those written here.
 */
#define _POSIX_C_SOURCE 200112L /* setenv */
#include <dace_redist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { max_dims = 3, shapes_of_files = 4 };

static int failures = 0;
static unsigned state;

static void expect(int right, const char* what, int line) {
  if (right) return;
  fprintf(stderr, "line %d: %s, \"%s\"\n", line, what, dr_error());
  ++failures;
}
#define EXPECT(right) expect(right, #right, __LINE__)
#define GOOD(call) EXPECT((call) == DR_SUCCESS)
#define BAD(call, said) EXPECT((call) != DR_SUCCESS && strstr(dr_error(), said))

/* The next random number below a limit, equal on all ranks. */
static int64_t some(int64_t limit) {
  state = state * 1103515245u + 12345u;
  return (state >> 8) % (unsigned)limit;
}

static dr_distribution* with_halo(dr_distribution* owned, int ndim) {
  int64_t halo[max_dims];
  dr_distribution* made = NULL;
  for (int i = 0; i < ndim; ++i) halo[i] = some(2);
  if (dr_distribution_create_halo(owned, halo, NULL, &made) != DR_SUCCESS) return owned; /* wider than a part */
  GOOD(dr_distribution_free(&owned));
  return made;
}

/* Blocks on some grid, block-cyclic or not, with a halo or not; tiles; or slabs. */
static dr_distribution* random_distribution(int ndim, const int64_t* shape, int ranks) {
  int64_t grid[max_dims] = {1, 1, 1}, block[max_dims], tile[max_dims], owner[1000], offset[max_dims * 8] = {0},
          extent[max_dims * 8], order[8];
  const int kind = (int)some(ndim > 0 ? 4 : 1), axis = (int)some(ndim + 1) % (ndim > 0 ? ndim : 1);
  dr_distribution* made = NULL;
  if (kind < 2) {
    grid[axis] = 1 + some(ranks);
    for (int i = 0; i < ndim; ++i) block[i] = some(3) ? 1 + some(3) : DR_BLOCK_BALANCED;
    for (int i = 0; i < grid[axis]; ++i) order[i] = (i + axis) % grid[axis];
    GOOD(dr_distribution_create_blocks(ndim, shape, ndim, grid, NULL, block, some(2) ? order : NULL, &made));
    return kind == 1 ? with_halo(made, ndim) : made;
  }
  for (int i = 0; i < ndim; ++i) tile[i] = 1 + some(4);
  for (int i = 0; i < 1000; ++i) owner[i] = some(ranks);
  if (kind == 2) {
    GOOD(dr_distribution_create_tiles(ndim, shape, tile, owner, &made));
    return made;
  }
  int count = 0;
  for (int64_t begin = 0; begin < shape[0]; begin += 3, ++count) {
    memcpy(extent + count * ndim, shape, sizeof *shape * (size_t)ndim);
    extent[count * ndim] = shape[0] - begin < 3 ? shape[0] - begin : 3;
    offset[count * ndim] = begin;
  }
  GOOD(dr_distribution_create_boxes(ndim, shape, count, offset, extent, owner, &made));
  return made;
}

/* An array for a rank's part; margins are -1. */
static double* new_array(const dr_distribution* side, int rank) {
  int64_t count = 0;
  GOOD(dr_distribution_local_count(side, rank, &count));
  double* made = malloc(sizeof *made * (size_t)(count + 1));
  for (int64_t i = 0; i <= count; ++i) made[i] = -1;
  return made;
}

static void move(dr_problem problem, MPI_Comm comm, const void* source, void* target) {
  dr_plan* plan = NULL;
  GOOD(dr_plan_create(&problem, comm, &plan));
  GOOD(dr_plan_execute(plan, source, target));
  GOOD(dr_plan_free(&plan));
}

static dr_problem problem_of(const dr_distribution* source, const dr_distribution* target) {
  dr_problem problem;
  GOOD(dr_problem_init(&problem));
  problem.source = source, problem.target = target, problem.element_bytes = sizeof(double);
  return problem;
}

/* A rank's part of the whole array, from rank 0. */
static double* part(int ndim, const int64_t* shape, const dr_distribution* side, MPI_Comm comm) {
  const int64_t one[max_dims] = {1, 1, 1};
  int rank;
  dr_distribution* on_first = NULL;
  MPI_Comm_rank(comm, &rank);
  GOOD(dr_distribution_create_blocks(ndim, shape, ndim, one, NULL, NULL, NULL, &on_first));
  double *whole = new_array(on_first, rank), *made = new_array(side, rank);
  int64_t count = 0;
  GOOD(dr_distribution_local_count(on_first, rank, &count));
  for (int64_t i = 0; i < count; ++i) whole[i] = (double)i;
  move(problem_of(on_first, side), comm, whole, made);
  GOOD(dr_distribution_free(&on_first));
  free(whole);
  return made;
}

static void check_part(const dr_distribution* side, MPI_Comm comm, int ndim, const int64_t* shape,
                       const double* found) {
  int rank;
  int64_t count = 0;
  double* const expected = part(ndim, shape, side, comm);
  MPI_Comm_rank(comm, &rank);
  GOOD(dr_distribution_local_count(side, rank, &count));
  EXPECT(memcmp(found, expected, sizeof *found * (size_t)count) == 0);
  free(expected);
}

static void move_between_groups(MPI_Comm inter, MPI_Comm group, int first) {
  int size, remote;
  MPI_Comm_size(inter, &size), MPI_Comm_remote_size(inter, &remote);
  for (state = 0; state < 40; ++state) {
    const unsigned seed = state;
    const int ndim = (int)some(max_dims + 1), sends = first == (seed % 2 == 0);
    int64_t shape[max_dims];
    for (int i = 0; i < ndim; ++i) shape[i] = 1 + some(7);
    dr_distribution *source = random_distribution(ndim, shape, sends ? size : remote),
                    *target = random_distribution(ndim, shape, sends ? remote : size);
    dr_problem problem = problem_of(source, target);
    problem.sends = sends;
    int rank;
    MPI_Comm_rank(group, &rank);
    double* array = sends ? part(ndim, shape, source, group) : new_array(target, rank);
    move(problem, inter, sends ? array : NULL, sends ? NULL : array);
    if (!sends) check_part(target, group, ndim, shape, array);
    free(array);
    GOOD(dr_distribution_free(&source));
    GOOD(dr_distribution_free(&target));
    state = seed;
  }
}

static void misuse_groups(MPI_Comm inter, int first, int rank) {
  const int64_t shape[] = {6, 4}, grid[] = {9, 1}, two[] = {2, 1}, other_shape[] = {6, 5};
  dr_distribution *wide = NULL, *rows = NULL, *other = NULL;
  dr_plan* plan = NULL;
  GOOD(dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &wide));
  GOOD(dr_distribution_create_blocks(2, shape, 2, two, NULL, NULL, NULL, &rows));
  GOOD(dr_distribution_create_blocks(2, other_shape, 2, two, NULL, NULL, NULL, &other));
  dr_problem problem = problem_of(rows, rows), both[2];
  BAD(dr_plan_create(&problem, inter, &plan), "one group of the intercommunicator must send (`sends` in all its");
  BAD(dr_plan_create(&problem, inter, &plan), "but none does");
  problem.sends = 1;
  BAD(dr_plan_create(&problem, inter, &plan), "both do");
  BAD(dr_plan_create(&problem, MPI_COMM_WORLD, &plan), "sends must be 0");
  problem.sends = first ? 1 : rank == 1; /* of the last rank of the other group */
  BAD(dr_plan_create(&problem, inter, &plan), "both do");
  problem.sends = first;
  BAD(dr_plan_create(rank == 1 ? NULL : &problem, inter, &plan), "problem is null");
  BAD(dr_plan_create_messages(&problem, 0, NULL, 0, NULL, inter, &plan), "comm is an intercommunicator");
  problem.target = wide;
  BAD(dr_plan_create(&problem, inter, &plan), "target needs 9 ranks, but its group has");
  problem.target = first ? rows : other;
  BAD(dr_plan_create(&problem, inter, &plan), "one global shape");
  problem.source = problem.target;
  BAD(dr_plan_create(&problem, inter, &plan), "the ranks differ in source shape[1]: ");
  problem.source = problem.target = rows;
  both[0] = both[1] = problem;
  both[1].sends = !first;
  BAD(dr_plan_create_joint(2, both, inter, &plan), "`sends` alike");
  both[1].sends = first;
  GOOD(dr_plan_create_joint(2, both, inter, &plan)); /* errors leave it in order */
  GOOD(dr_plan_free(&plan));
  setenv("DACE_REDIST_GROUP_SECONDS", "1", 1);
  if (!first) sleep(3);
  BAD(dr_plan_create(&problem, inter, &plan), "did not call within 1 seconds");
  BAD(dr_plan_create(&problem, inter, &plan), "did not meet in an earlier call");
  GOOD(dr_distribution_free(&wide));
  GOOD(dr_distribution_free(&rows));
  GOOD(dr_distribution_free(&other));
}

static const int dims[shapes_of_files] = {0, 1, 2, 3};
static const int64_t shapes[shapes_of_files][max_dims] = {{0}, {11}, {7, 5}, {4, 3, 6}};

/* Loads and saves arrays of NumPy, `given<number><order>.npy`; raw files have 24 bytes ahead. */
static void use_files(const char* folder, int rank, int size) {
  for (state = 0; state < 40; ++state) {
    const unsigned seed = state;
    const int number = (int)(seed / 2 % shapes_of_files), order = (int)(seed % 2);
    dr_distribution *from = random_distribution(dims[number], shapes[number], size),
                    *to = random_distribution(dims[number], shapes[number], size);
    char path[2][1000];
    dr_file file;
    GOOD(dr_file_init(&file));
    file.type = DR_FLOAT64, file.ranks = (int)some(size + 1), file.path = path[0];
    sprintf(path[0], "%s/given%d%c.npy", folder, number, "CF"[order]);
    sprintf(path[1], "%s/made%d%c%u.%s", folder, number, "CF"[order], seed, seed % 3 ? "npy" : "raw");
    double *first = new_array(from, rank), *second = new_array(to, rank);
    GOOD(dr_load(&file, from, MPI_COMM_WORLD, first));
    check_part(from, MPI_COMM_WORLD, dims[number], shapes[number], first);
    file.path = path[1], file.fortran_order = order, file.raw = seed % 3 == 0, file.offset = file.raw ? 24 : 0;
    for (int again = 0; again < 2; ++again) {
      GOOD(dr_save(&file, from, MPI_COMM_WORLD, first));
      GOOD(dr_load(&file, to, MPI_COMM_WORLD, second));
      check_part(to, MPI_COMM_WORLD, dims[number], shapes[number], second);
    }
    free(first), free(second);
    GOOD(dr_distribution_free(&from));
    GOOD(dr_distribution_free(&to));
    state = seed;
  }
}

/* More than a piece of one rank; or each rank's part, in long runs. */
static void use_large_file(const char* folder, int rank, int size) {
  const int64_t shape[] = {70, 131072}, grid[] = {1, size};
  char path[1000];
  dr_distribution* columns = NULL;
  dr_file file;
  GOOD(dr_distribution_create_blocks(2, shape, 2, grid, NULL, NULL, NULL, &columns));
  GOOD(dr_file_init(&file));
  sprintf(path, "%s/large.npy", folder);
  file.path = path, file.type = DR_FLOAT64;
  double *first = part(2, shape, columns, MPI_COMM_WORLD), *second = new_array(columns, rank);
  for (file.ranks = 0; file.ranks < 2; ++file.ranks) {
    second[0] = -1;
    GOOD(dr_save(&file, columns, MPI_COMM_WORLD, first));
    GOOD(dr_load(&file, columns, MPI_COMM_WORLD, second));
    check_part(columns, MPI_COMM_WORLD, 2, shape, second);
  }
  free(first), free(second);
  GOOD(dr_distribution_free(&columns));
}

/* Ranks that save their parts of one raw file, which is missing at first, at the same time; each leaves the others'. */
static void save_beside_others(const char* folder, int rank, int size) {
  const int64_t shape[] = {1000}, one[] = {1};
  char path[1000];
  static double mine[1000], all[1000];
  dr_distribution* whole = NULL;
  dr_file file;
  GOOD(dr_distribution_create_blocks(1, shape, 1, one, NULL, NULL, NULL, &whole));
  GOOD(dr_file_init(&file));
  sprintf(path, "%s/beside.raw", folder);
  file.path = path, file.type = DR_FLOAT64, file.raw = 1;
  for (int again = 1; again <= 20; ++again) {
    for (int i = 0; i < 1000; ++i) mine[i] = again * 100 + rank;
    file.offset = rank * (int64_t)sizeof mine;
    GOOD(dr_save(&file, whole, MPI_COMM_SELF, mine));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 0; other < size; ++other) {
      file.offset = other * (int64_t)sizeof mine;
      GOOD(dr_load(&file, whole, MPI_COMM_SELF, all));
      EXPECT(all[0] == again * 100 + other && all[999] == all[0]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  file.path = "/dev/null", file.offset = 0;
  GOOD(dr_save(&file, whole, MPI_COMM_SELF, mine));
  file.raw = 0;
  BAD(dr_save(&file, whole, MPI_COMM_SELF, mine), "is a device, pipe or socket");
  file.raw = 1, file.offset = INT64_MAX - 100;
  BAD(dr_save(&file, whole, MPI_COMM_SELF, mine), "must be such that the array ends before byte 2^63");
  GOOD(dr_distribution_free(&whole));
}

static void misuse_files(const char* folder, int rank, int size) {
  const int64_t other_shape[] = {5, 7}, grid[] = {size, 1}, wide[] = {size + 1, 1}, cyclic[] = {1, 1};
  const char* const names[] = {"missing/a.npy", "missing.npy", "short.npy", "damaged.npy", "float32.npy", "."};
  const char* const said[] = {"No such file or directory",
                              "No such file or directory",
                              "but its array ends at byte",
                              "is no .npy file",
                              "has elements of type '<f4', expected '<f8'",
                              "irectory"};
  char path[1000];
  static double array[35];
  dr_distribution *rows = NULL, *others = NULL, *wider = NULL;
  dr_file file;
  GOOD(dr_distribution_create_blocks(2, shapes[2], 2, grid, NULL, NULL, NULL, &rows));
  GOOD(dr_distribution_create_blocks(2, other_shape, 2, grid, NULL, cyclic, NULL, &others));
  GOOD(dr_distribution_create_blocks(2, shapes[2], 2, wide, NULL, NULL, NULL, &wider));
  BAD(dr_file_init(NULL), "file is null");
  GOOD(dr_file_init(&file));
  BAD(dr_load(&file, rows, MPI_COMM_WORLD, array), "file->path is null");
  file.path = path;
  for (int i = 0; i < 6; ++i) {
    sprintf(path, "%s/%s", folder, names[i]);
    BAD(dr_load(&file, rows, MPI_COMM_WORLD, array), "file->type must be a dr_type from 1 to 15 of a .npy file, got 0");
    file.type = DR_FLOAT64;
    EXPECT(dr_load(&file, rows, MPI_COMM_WORLD, array) == DR_ERROR_FILE && strstr(dr_error(), said[i]));
    EXPECT(strstr(dr_error(), path) && (rank == 0 || strstr(dr_error(), "on rank 0: ")));
    if (i == 0 || i == 5) BAD(dr_save(&file, rows, MPI_COMM_WORLD, array), i == 0 ? said[0] : "is a folder, where a");
    file.type = DR_OPAQUE;
  }
  file.type = DR_FLOAT64;
  sprintf(path, "/sys/dace-redist.npy");
  EXPECT(dr_save(&file, rows, MPI_COMM_WORLD, array) == DR_ERROR_FILE && strstr(dr_error(), path));
  sprintf(path, "%s/given2C.npy", folder);
  BAD(dr_load(&file, others, MPI_COMM_WORLD, array), "has an array of shape (7, 5), but the distribution has (5, 7)");
  BAD(dr_load(&file, wider, MPI_COMM_WORLD, array), "ranks, but the communicator has");
  BAD(dr_load(&file, NULL, MPI_COMM_WORLD, array), "distribution is null");
  BAD(dr_load(&file, rows, MPI_COMM_WORLD, rank == size - 1 ? NULL : array), "array is null");
  BAD(dr_load(&file, rows, MPI_COMM_NULL, array), "comm is MPI_COMM_NULL");
  file.offset = 1;
  BAD(dr_load(&file, rows, MPI_COMM_WORLD, array), "file->offset must be 0, or more in a raw file, got 1");
  file.offset = 0, file.ranks = size + 1;
  BAD(dr_load(&file, rows, MPI_COMM_WORLD, array), "file->ranks must be from 0 to");
  file.ranks = 0;
  if (size > 1) {
    file.type = rank == 0 ? DR_FLOAT64 : DR_INT64;
    BAD(dr_save(&file, rows, MPI_COMM_WORLD, array), "the ranks differ in type: 11 on rank 0 and 5 on rank 1");
    file.type = DR_FLOAT64;
    BAD(dr_save(&file, rank == 0 ? rows : others, MPI_COMM_WORLD, array), "the ranks differ in shape[0]: 7 on rank 0");
  }
  file.raw = 1, file.type = DR_OPAQUE;
  BAD(dr_load(&file, rows, MPI_COMM_WORLD, array), "file->element_bytes must be at least 1, got 0");
  file.element_bytes = 8, file.offset = 1000;
  BAD(dr_load(&file, rows, MPI_COMM_WORLD, array), "its array ends at byte 1280");
  file.offset = 128;
  GOOD(dr_load(&file, rows, MPI_COMM_WORLD, array)); /* errors left the file in order */
  EXPECT(size > 7 || array[1] == array[0] + 1);
  GOOD(dr_distribution_free(&rows));
  GOOD(dr_distribution_free(&others));
  GOOD(dr_distribution_free(&wider));
}

int main(int argc, char** argv) {
  int rank, size, all = 0;
  MPI_Comm group, inter;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2) MPI_Abort(MPI_COMM_WORLD, 2);
  use_files(argv[1], rank, size);
  use_large_file(argv[1], rank, size);
  save_beside_others(argv[1], rank, size);
  misuse_files(argv[1], rank, size);
  if (size > 2) {
    const int first = rank < 2;
    int in_group;
    MPI_Comm_split(MPI_COMM_WORLD, first, 0, &group);
    MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, first ? 2 : 0, 0, &inter);
    MPI_Comm_rank(inter, &in_group);
    move_between_groups(inter, group, first);
    MPI_Comm_free(&inter);
    MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, first ? 2 : 0, 0, &inter);
    misuse_groups(inter, first, in_group);
    MPI_Comm_free(&group);
  }
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d failures\n", all);
  MPI_Finalize();
  return all != 0;
}
