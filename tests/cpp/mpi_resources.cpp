// What plans take and give back: memory, MPI objects, requests.
//
// Usage: mpiexec -n RANKS mpi_resources plans STRATEGIES PLANS
//        mpiexec -n RANKS mpi_resources communicators STRATEGIES COMMUNICATORS
//        mpiexec -n RANKS mpi_resources in_flight STRATEGIES BYTES
// with commas between strategies
//
// Linked with -Wl,--wrap=aligned_alloc,--wrap=free: only calls of the runtime and of this file are counted.

#include <malloc.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string>

#include "core/options.hpp"
#include "plan/plan.hpp"
#include "shm/arena.hpp"
#include "transport/context.hpp"

namespace {

using namespace dace_redist;

std::atomic<long> allocations{0}, frees{0};  // of the runtime

enum Kind { communicators, groups, windows, datatypes, requests, kinds };
constexpr const char* kind_names[kinds] = {"communicators", "groups", "windows", "datatypes", "requests"};
std::array<long, kinds> alive{}, made_ever{};  // MPI's objects
long duplicates = 0;                           // of communicators

int counted(int code, Kind kind, long change) {
  if (code != MPI_SUCCESS) return code;
  alive[kind] += change;
  made_ever[kind] += std::max(0L, change);
  return code;
}

/// A message that MPI_Isend was given; in flight as long as nbytes > 0.
struct Sent {
  MPI_Request request;
  long nbytes;
};
std::array<Sent, 4096> sent{};
long in_flight = 0, most_in_flight = 0, longest = 0;  // bytes

void note_sent(MPI_Request request, long nbytes) {
  *std::find_if(sent.begin(), sent.end(), [](const Sent& one) { return one.nbytes == 0; }) = {request, nbytes};
  in_flight += nbytes;
  most_in_flight = std::max(most_in_flight, in_flight);
  longest = std::max(longest, nbytes);
}
/// \param request  of a message that was sent or received.
void note_ended(MPI_Request request) {
  for (Sent& one : sent)
    if (one.request == request) in_flight -= std::exchange(one.nbytes, 0);
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

DACE_REDIST_COUNT(MPI_Comm_dup, (MPI_Comm a, MPI_Comm* b), (a, b), communicators, (++duplicates, 1))
DACE_REDIST_COUNT(MPI_Comm_split, (MPI_Comm a, int b, int c, MPI_Comm* d), (a, b, c, d), communicators,
                  *d != MPI_COMM_NULL)
DACE_REDIST_COUNT(MPI_Comm_split_type, (MPI_Comm a, int b, int c, MPI_Info d, MPI_Comm* e), (a, b, c, d, e),
                  communicators, *e != MPI_COMM_NULL)
DACE_REDIST_COUNT(MPI_Intercomm_merge, (MPI_Comm a, int b, MPI_Comm* c), (a, b, c), communicators, 1)
DACE_REDIST_COUNT(MPI_Comm_free, (MPI_Comm * a), (a), communicators, -1)
DACE_REDIST_COUNT(MPI_Comm_group, (MPI_Comm a, MPI_Group* b), (a, b), groups, 1)
DACE_REDIST_COUNT(MPI_Group_incl, (MPI_Group a, int b, const int* c, MPI_Group* d), (a, b, c, d), groups, 1)
DACE_REDIST_COUNT(MPI_Group_free, (MPI_Group * a), (a), groups, -1)
DACE_REDIST_COUNT(MPI_Win_allocate, (MPI_Aint a, int b, MPI_Info c, MPI_Comm d, void* e, MPI_Win* f),
                  (a, b, c, d, e, f), windows, 1)
DACE_REDIST_COUNT(MPI_Win_free, (MPI_Win * a), (a), windows, -1)
DACE_REDIST_COUNT(MPI_Type_contiguous, (int a, MPI_Datatype b, MPI_Datatype* c), (a, b, c), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_dup, (MPI_Datatype a, MPI_Datatype* b), (a, b), datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_hvector, (int a, int b, MPI_Aint c, MPI_Datatype d, MPI_Datatype* e), (a, b, c, d, e),
                  datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_create_struct,
                  (int a, const int* b, const MPI_Aint* c, const MPI_Datatype* d, MPI_Datatype* e), (a, b, c, d, e),
                  datatypes, 1)
DACE_REDIST_COUNT(MPI_Type_free, (MPI_Datatype * a), (a), datatypes, -1)
DACE_REDIST_COUNT(MPI_Irecv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
                  (a, b, c, d, e, f, g), requests, 1)
DACE_REDIST_COUNT(MPI_Request_free, (MPI_Request * a), (a), requests, -1)

extern "C" int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  const int code = PMPI_Isend(bytes, count, type, to, tag, comm, request);
  int size = 0;
  PMPI_Type_size(type, &size);
  note_sent(*request, static_cast<long>(size) * count);
  return counted(code, requests, 1);
}
template <class Test>
int counted_test(int count, MPI_Request list[], const Test& test) {
  static std::array<MPI_Request, sent.size()> before;
  std::copy_n(list, std::min(count, static_cast<int>(before.size())), before.begin());
  const long open = active(count, list);
  const int code = test();
  for (int i = 0; i < count; ++i)
    if (const MPI_Request was = before.at(static_cast<std::size_t>(i));
        was != MPI_REQUEST_NULL && list[i] == MPI_REQUEST_NULL)
      note_ended(was);
  return counted(code, requests, active(count, list) - open);
}

extern "C" int MPI_Testsome(int count, MPI_Request list[], int* done, int indices[], MPI_Status statuses[]) {
  return counted_test(count, list, [&] { return PMPI_Testsome(count, list, done, indices, statuses); });
}
extern "C" int MPI_Testall(int count, MPI_Request list[], int* done, MPI_Status statuses[]) {
  return counted_test(count, list, [&] { return PMPI_Testall(count, list, done, statuses); });
}

namespace {

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

constexpr double min_chunk_bytes = 32;  // bytes that malloc takes for one byte

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

/// The name for Hierarchical where each rank is a node, and what is shorter than a long chunk is joined.
const char* const joined = "joined";

/// Rows to columns over all ranks, elements of 4 bytes, some messages in several parts.
Problem rows_to_columns(const std::string& strategy) {
  const int ranks = comm_size(MPI_COMM_WORLD);
  Problem problem{"plans", strategy == joined ? "Hierarchical" : strategy, default_options(), {}};
  problem.options.chunk_bytes = 256;
  problem.options.max_message_bytes = 512;
  problem.options.slot_bytes = 256;
  problem.options.threads = 2;
  if (strategy == joined) {
    problem.options.chunk_bytes = problem.options.join_bytes = max_joined_bytes;
    setenv(node_ranks_variable, "1", 1);
  }
  problem.tensors.push_back({Distribution({0, 2, 1, 40, 50, ranks, 0, -1, 0, 0, -1, 0}, "source"),
                             Distribution({0, 2, 1, 40, 50, ranks, -1, 0, 0, -1, -1, 0}, "target"), 4});
  return problem;
}

constexpr int max_alive = 100;  // plans at a time

/// Makes, runs and frees plans, one after another and many at a time, on one communicator.
void make_plans(const std::string& strategy, int plans) {
  const Problem problem = rows_to_columns(strategy);
  std::vector<float> source(40 * 50), target(40 * 50);
  const void* const sources[] = {source.data()};
  void* const targets[] = {target.data()};
  const auto make = [&] { return Plan::make(MPI_COMM_WORLD, [&] { return problem; }); };
  const auto make_and_free = [&] {
    const PlanPointer plan = make();
    for (int run = 0; run < 2; ++run) {
      const long before = allocations;
      plan->run(sources, targets);
      if (allocations != before) throw Error(text("run ", run, " made ", allocations - before, " allocations"));
    }
  };
  const auto make_many = [&] {
    std::vector<PlanPointer> alive_plans;
    for (int i = 0; i < max_alive; ++i) alive_plans.push_back(make());
    for (const auto& plan : alive_plans) plan->run(sources, targets);
  };
  make_many();
  for (int i = 0; i < plans / 5; ++i) make_and_free();
  make_many();
  MPI_Barrier(MPI_COMM_WORLD);
  sweep_deferred();
  MPI_Barrier(MPI_COMM_WORLD);
  const Taken before = taken();
  const std::array<long, kinds> alive_before = alive;
  Taken after = before;
  double heap = std::numeric_limits<double>::max();
  for (int part = 0; part < 5; ++part) {  // a leak grows in every part, MPI's pools now and then
    const double heap_before = static_cast<double>(taken().heap);
    for (int i = 0; i < plans / 5; ++i) make_and_free();
    make_many();
    MPI_Barrier(MPI_COMM_WORLD);
    sweep_deferred();  // the partners have freed their plans, too
    MPI_Barrier(MPI_COMM_WORLD);
    after = taken();
    heap = std::min(heap, (static_cast<double>(after.heap) - heap_before) / (plans / 5));
  }
  for (int kind = 0; kind < kinds; ++kind)
    expect(alive[kind] == alive_before[kind], text(alive[kind] - alive_before[kind], " ", kind_names[kind], " left"));
  expect(duplicates == 1, text(duplicates, " duplicates of one communicator"));
  expect(made_ever[requests] >= plans || strategy == "Hierarchical", "requests are not counted");
  // Up to a plan's worth of allocations waits for a partner to free its plan, too.
  const long runtime = after.runtime - before.runtime;
  expect(runtime < max_alive, text(runtime, " allocations left"));
  std::printf("rank %d: grew by %.2f bytes of heap per plan, by %ld files and %ld mappings in all\n",
              comm_rank(MPI_COMM_WORLD), heap, after.files - before.files, after.maps - before.maps);
  expect(heap < min_chunk_bytes, text("the heap grew by ", heap, " bytes per plan"));
  expect(after.files == before.files, "files were left open");
  expect(after.maps - before.maps < plans / 20, "files were left mapped");
}

/// A communicator that is freed takes everything with it.
void free_communicators(const std::string& strategy, int communicators_to_make) {
  const Problem problem = rows_to_columns(strategy);
  std::vector<float> source(40 * 50), target(40 * 50);
  const void* const sources[] = {source.data()};
  void* const targets[] = {target.data()};
  const auto use_one = [&] {
    MPI_Comm comm = MPI_COMM_NULL;
    PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const PlanPointer plan = Plan::make(comm, [&] { return problem; });
    plan->run(sources, targets);
    PMPI_Comm_free(&comm);  // the plan goes on
    plan->run(sources, targets);
  };
  use_one();
  const std::array<long, kinds> alive_before = alive;
  const Taken before = taken();
  for (int i = 0; i < communicators_to_make; ++i) use_one();
  const Taken after = taken();
  for (int kind = 0; kind < kinds; ++kind)
    expect(alive[kind] == alive_before[kind], text(alive[kind] - alive_before[kind], " ", kind_names[kind], " left"));
  expect(after.files == before.files, "files were left open");
  if (comm_rank(MPI_COMM_WORLD) == 0) std::printf("%d communicators were freed\n", communicators_to_make);
}

/// No more bytes are in flight than the option says, or one message, whether the transfer is attended or not.
void limit_bytes(const std::string& strategy, int most) {
  setenv(node_ranks_variable, "1", 1);
  Problem problem = rows_to_columns(strategy);
  problem.options.depth = 1000;
  if (strategy == joined) problem.options.max_message_bytes = 1 << 20;  // the parts of a joined message move together
  for (const int limit : {0, most, 1}) {
    problem.options.max_in_flight_bytes = limit;
    const PlanPointer plan = Plan::make(MPI_COMM_WORLD, [&] { return problem; });
    std::vector<float> source(40 * 50), target(40 * 50);
    const void* const sources[] = {source.data()};
    void* const targets[] = {target.data()};
    most_in_flight = longest = 0;
    plan->run(sources, targets);
    const long attended = most_in_flight;
    plan->start(sources, targets);
    plan->wait();
    const long both = most_in_flight, allowed = std::max<long>(limit, longest);
    if (comm_rank(MPI_COMM_WORLD) == 0)
      std::printf("%s limit %d: %ld and %ld bytes in flight, longest %ld\n", strategy.c_str(), limit, attended, both,
                  longest);
    expect(in_flight == 0, "ends of messages are not counted");
    expect(limit == 0 ? both > most : both <= allowed, text(both, " bytes in flight of ", limit));
  }
}

void run(int count, char** words) {
  expect(count == 4, "usage: see the file");
  const std::string what = words[1];
  const auto check_one = what == "plans" ? make_plans : what == "in_flight" ? limit_bytes : free_communicators;
  std::istringstream strategies(words[2]);
  for (std::string strategy; std::getline(strategies, strategy, ',');) try {
      check_one(strategy, std::atoi(words[3]));
    } catch (const std::exception& error) {
      throw Error(strategy + ": " + error.what());
    }
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
