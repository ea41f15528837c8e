// What plans take and give back: memory, MPI objects, requests; and messages larger than one MPI call holds.
//
// Usage: mpiexec -n RANKS mpi_resources plans STRATEGY [plans]
//        mpiexec -n 2 mpi_resources move STRATEGY ROWS COLUMNS PADDING MAX_MESSAGE_BYTES
//
// Linked with -Wl,--wrap=aligned_alloc,--wrap=free: only calls of the runtime and of this file are counted.

#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "plan/registry.hpp"

namespace {

using namespace dace_redist;

std::atomic<long> allocations{0}, frees{0};  // of the runtime

enum Kind { communicators, groups, windows, infos, datatypes, requests, kinds };
constexpr const char* kind_names[kinds] = {"communicators", "groups", "windows", "infos", "datatypes", "requests"};
long alive[kinds] = {}, made_ever[kinds] = {};  // MPI's objects

int counted(int code, Kind kind, long change) {
  if (code != MPI_SUCCESS) return code;
  alive[kind] += change;
  made_ever[kind] += std::max(0L, change);
  return code;
}

long active(int count, const MPI_Request* list) {
  return std::count_if(list, list + count, [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

}  // namespace

// Allocations of the runtime.

extern "C" {
void* __real_aligned_alloc(std::size_t alignment, std::size_t nbytes);
void __real_free(void* bytes);
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t nbytes) {
  ++allocations;
  return __real_aligned_alloc(alignment, nbytes);
}
void __wrap_free(void* bytes) {
  if (bytes) ++frees;
  __real_free(bytes);
}
}

// Not inlined: GCC then takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t nbytes) {
  ++allocations;
  if (void* bytes = std::malloc(nbytes)) return bytes;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* bytes) noexcept { std::free(bytes); }
[[gnu::noinline]] void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

// MPI's profiling interface: what makes an object, what frees one, what starts and ends requests.

#define DACE_REDIST_COUNT(NAME, PARAMETERS, ARGUMENTS, KIND, CHANGE) \
  extern "C" int NAME PARAMETERS {                                   \
    const int code = P##NAME ARGUMENTS;                              \
    return counted(code, KIND, CHANGE);                              \
  }

DACE_REDIST_COUNT(MPI_Comm_dup, (MPI_Comm a, MPI_Comm* b), (a, b), communicators, 1)
DACE_REDIST_COUNT(MPI_Comm_split, (MPI_Comm a, int b, int c, MPI_Comm* d), (a, b, c, d), communicators,
                  *d != MPI_COMM_NULL)
DACE_REDIST_COUNT(MPI_Comm_split_type, (MPI_Comm a, int b, int c, MPI_Info d, MPI_Comm* e), (a, b, c, d, e),
                  communicators, *e != MPI_COMM_NULL)
DACE_REDIST_COUNT(MPI_Comm_create, (MPI_Comm a, MPI_Group b, MPI_Comm* c), (a, b, c), communicators,
                  *c != MPI_COMM_NULL)
DACE_REDIST_COUNT(MPI_Comm_create_group, (MPI_Comm a, MPI_Group b, int c, MPI_Comm* d), (a, b, c, d), communicators,
                  *d != MPI_COMM_NULL)
DACE_REDIST_COUNT(MPI_Comm_free, (MPI_Comm * a), (a), communicators, -1)
DACE_REDIST_COUNT(MPI_Comm_group, (MPI_Comm a, MPI_Group* b), (a, b), groups, 1)
DACE_REDIST_COUNT(MPI_Win_get_group, (MPI_Win a, MPI_Group* b), (a, b), groups, 1)
DACE_REDIST_COUNT(MPI_Group_incl, (MPI_Group a, int b, const int* c, MPI_Group* d), (a, b, c, d), groups, 1)
DACE_REDIST_COUNT(MPI_Group_excl, (MPI_Group a, int b, const int* c, MPI_Group* d), (a, b, c, d), groups, 1)
DACE_REDIST_COUNT(MPI_Group_free, (MPI_Group * a), (a), groups, -1)
DACE_REDIST_COUNT(MPI_Win_allocate, (MPI_Aint a, int b, MPI_Info c, MPI_Comm d, void* e, MPI_Win* f),
                  (a, b, c, d, e, f), windows, 1)
DACE_REDIST_COUNT(MPI_Win_allocate_shared, (MPI_Aint a, int b, MPI_Info c, MPI_Comm d, void* e, MPI_Win* f),
                  (a, b, c, d, e, f), windows, 1)
DACE_REDIST_COUNT(MPI_Win_create, (void* a, MPI_Aint b, int c, MPI_Info d, MPI_Comm e, MPI_Win* f), (a, b, c, d, e, f),
                  windows, 1)
DACE_REDIST_COUNT(MPI_Win_free, (MPI_Win * a), (a), windows, -1)
DACE_REDIST_COUNT(MPI_Info_create, (MPI_Info * a), (a), infos, 1)
DACE_REDIST_COUNT(MPI_Info_free, (MPI_Info * a), (a), infos, -1)
DACE_REDIST_COUNT(MPI_Type_contiguous, (int a, MPI_Datatype b, MPI_Datatype* c), (a, b, c), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_vector, (int a, int b, int c, MPI_Datatype d, MPI_Datatype* e), (a, b, c, d, e), datatypes,
                  1)
DACE_REDIST_COUNT(MPI_Type_create_hvector, (int a, int b, MPI_Aint c, MPI_Datatype d, MPI_Datatype* e), (a, b, c, d, e),
                  datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_struct,
                  (int a, const int* b, const MPI_Aint* c, const MPI_Datatype* d, MPI_Datatype* e), (a, b, c, d, e),
                  datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_hindexed, (int a, const int* b, const MPI_Aint* c, MPI_Datatype d, MPI_Datatype* e),
                  (a, b, c, d, e), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_hindexed_block, (int a, int b, const MPI_Aint* c, MPI_Datatype d, MPI_Datatype* e),
                  (a, b, c, d, e), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_subarray,
                  (int a, const int* b, const int* c, const int* d, int e, MPI_Datatype f, MPI_Datatype* g),
                  (a, b, c, d, e, f, g), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_resized, (MPI_Datatype a, MPI_Aint b, MPI_Aint c, MPI_Datatype* d), (a, b, c, d),
                  datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_dup, (MPI_Datatype a, MPI_Datatype* b), (a, b), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_free, (MPI_Datatype * a), (a), datatypes, -1)
DACE_REDIST_COUNT(MPI_Isend, (const void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
                  (a, b, c, d, e, f, g), requests, 1)
DACE_REDIST_COUNT(MPI_Irecv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
                  (a, b, c, d, e, f, g), requests, 1)
DACE_REDIST_COUNT(MPI_Request_free, (MPI_Request * a), (a), requests, -1)

extern "C" int MPI_Waitall(int count, MPI_Request list[], MPI_Status statuses[]) {
  const long open = active(count, list);
  return counted(PMPI_Waitall(count, list, statuses), requests, -open);
}
extern "C" int MPI_Waitsome(int count, MPI_Request list[], int* done, int indices[], MPI_Status statuses[]) {
  const long open = active(count, list);
  const int code = PMPI_Waitsome(count, list, done, indices, statuses);
  return counted(code, requests, active(count, list) - open);
}
extern "C" int MPI_Testsome(int count, MPI_Request list[], int* done, int indices[], MPI_Status statuses[]) {
  const long open = active(count, list);
  const int code = PMPI_Testsome(count, list, done, indices, statuses);
  return counted(code, requests, active(count, list) - open);
}
extern "C" int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  const long open = active(1, request);
  return counted(PMPI_Wait(request, status), requests, -open);
}

namespace {

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

/// The local encoding of a C-order array.
Encoding c_order(const Encoding& distribution, int rank) {
  Encoding shape = Distribution(distribution).local_shape(rank), strides = c_strides(shape);
  shape.insert(shape.end(), strides.begin(), strides.end());
  return shape;
}

constexpr double smallest_chunk = 32;  // bytes that malloc takes for one byte

struct Taken {
  long runtime = 0;          // allocations that live
  std::size_t heap = 0;      // bytes, all libraries
  long files = 0, maps = 0;  // open, and mapped into memory, as is shared memory
};

Taken taken() {
  const struct mallinfo2 info = mallinfo2();
  Taken now{allocations - frees, info.uordblks + info.hblkhd, 0, 0};
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) now.files += !file.path().empty();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.maps;
  return now;
}

/// For Aggregated each rank is a node, and what is shorter than a long chunk is joined.
void leave_node(Description& description) {
  if (description.strategy != "Aggregated") return;
  description.options.chunk_bytes = most_joined_bytes;
  setenv(node_ranks_variable, "1", 1);
}

/// Makes, runs and frees plans. Rows to columns over all ranks, elements of 4 bytes, some messages in several parts.
void make_plans(const std::string& strategy, int plans) {
  const int ranks = comm_size(MPI_COMM_WORLD), rank = comm_rank(MPI_COMM_WORLD);
  Description description{"plans", strategy, 4, {}, {}, {}, {}, {}};
  description.options.chunk_bytes = 256;
  description.options.max_message_bytes = 512;
  description.options.slot_bytes = 256;
  description.options.threads = 2;
  leave_node(description);
  description.source = {0, 2, 1, 40, 50, ranks, 0, -1, 0, 0, -1, 0};
  description.target = {0, 2, 1, 40, 50, ranks, -1, 0, 0, -1, -1, 0};
  description.source_local = c_order(description.source, rank);
  description.target_local = c_order(description.target, rank);
  std::vector<float> source(40 * 50), target(40 * 50);
  const auto make_and_free = [&] {
    const std::unique_ptr<Plan> plan = find_strategy(strategy)(description, MPI_COMM_WORLD);
    for (int run = 0; run < 2; ++run) {
      const long before = allocations;
      plan->run(source.data(), target.data());
      if (allocations != before) throw Error(text("run ", run, " made ", allocations - before, " allocations"));
    }
  };
  for (int i = 0; i < plans / 5; ++i) make_and_free();
  const Taken before = taken();
  Taken after = before;
  double heap = std::numeric_limits<double>::max();
  for (int part = 0; part < 5; ++part) {  // a leak grows in every part, MPI's pools now and then
    const double heap_before = static_cast<double>(taken().heap);
    for (int i = 0; i < plans / 5; ++i) make_and_free();
    MPI_Barrier(MPI_COMM_WORLD);
    after = taken();
    heap = std::min(heap, (static_cast<double>(after.heap) - heap_before) / (plans / 5));
  }
  for (int kind = 0; kind < kinds; ++kind) expect(alive[kind] == 0, text(alive[kind], " ", kind_names[kind], " left"));
  expect(made_ever[communicators] >= plans && made_ever[requests] >= plans,
         "communicators and requests are not counted");
  expect(after.runtime == before.runtime, text(after.runtime - before.runtime, " allocations left"));
  std::printf("rank %d: grew by %.2f bytes of heap per plan, by %ld files and %ld mappings in all\n", rank, heap,
              after.files - before.files, after.maps - before.maps);
  expect(heap < smallest_chunk, text("the heap grew by ", heap, " bytes per plan"));
  expect(after.files - before.files < plans / 4, "files were left open");
  expect(after.maps - before.maps < plans / 4, "files were left mapped");
}

/// The value of a global position; neighbours and rows differ.
unsigned char value_at(Index position) {
  return static_cast<unsigned char>((static_cast<std::uint64_t>(position) * 0x9E3779B97F4A7C15u) >> 56);
}

/// Moves all of a rows x columns array of bytes from rank 0 to rank 1; `padding` bytes behind each row on both sides.
void move(const std::string& strategy, Index rows, Index columns, Index padding, Index max_message_bytes) {
  const int rank = comm_rank(MPI_COMM_WORLD);
  const Index pitch = columns + padding;
  Description description{"move", strategy, 1, {}, {}, {}, {}, {}};
  if (max_message_bytes > 0) description.options.max_message_bytes = max_message_bytes;
  leave_node(description);
  description.source = {0, 2, 1, rows, columns, 1, -1, -1, 0, 0, -1, 1, 0};
  description.target = {0, 2, 1, rows, columns, 1, -1, -1, 0, 0, -1, 1, 1};
  description.source_local = description.target_local = {rows, pitch, pitch, 1};
  std::unique_ptr<unsigned char, void (*)(void*)> array(
      static_cast<unsigned char*>(std::malloc(static_cast<std::size_t>(rows * pitch))), std::free);
  expect(array != nullptr, "not enough memory");
  for (Index row = 0; row < rows; ++row)
    for (Index column = 0; column < pitch; ++column)
      array.get()[row * pitch + column] = rank == 0 && column < columns ? value_at(row * columns + column) : 7;
  const std::unique_ptr<Plan> plan = find_strategy(strategy)(description, MPI_COMM_WORLD);
  double seconds[2];
  for (double& run : seconds) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    plan->run(array.get(), array.get());
    MPI_Barrier(MPI_COMM_WORLD);
    run = MPI_Wtime() - start;
  }
  const auto check = [&](Index row, Index column) {
    const unsigned char expected = column < columns ? value_at(row * columns + column) : 7;
    expect(array.get()[row * pitch + column] == expected, text("row ", row, ", column ", column, " is wrong"));
  };
  for (Index position = 0; rank == 1 && position < rows * pitch; position += 61)
    check(position / pitch, position % pitch);
  for (Index row = 0; rank == 1 && row < rows; ++row)
    for (const Index column : {Index{0}, columns - 1, pitch - 1}) check(row, column);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const double mine = static_cast<double>(usage.ru_maxrss) / (1 << 20);
  double both = 0;
  MPI_Reduce(&mine, &both, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("%s moved %lld bytes in %.2f s, then %.2f s; peak memory of both ranks %.2f GiB\n", strategy.c_str(),
                static_cast<long long>(rows * columns), seconds[0], seconds[1], both);
}

void run(int count, char** words) {
  const auto number = [&](int at, Index otherwise) { return at < count ? std::atoll(words[at]) : otherwise; };
  expect(count > 2, "usage: see the file");
  if (std::string(words[1]) == "plans") return make_plans(words[2], static_cast<int>(number(3, 1000)));
  move(words[2], number(3, 1), number(4, 1), number(5, 0), number(6, 0));
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm_rank(MPI_COMM_WORLD), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
