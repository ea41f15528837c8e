// Transfers that were started advance whatever their ranks do meanwhile, and one that fails on one rank fails on all.
//
// Usage: mpiexec -n RANKS mpi_progress CASES STRATEGIES, with commas between them; cases: orders, blocked, failures,
// many
//
// Linked with -Wl,--wrap=aligned_alloc,--wrap=free.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/agreement.hpp"
#include "mpi_leaks.hpp"
#include "plan/plan.hpp"
#include "shm/array_allocator.hpp"
#include "transport/context.hpp"

namespace {

bool sends_fail = false, allocations_fail = false;  // the next one

bool take(bool& flag) {
  const bool was = flag;
  flag = false;
  return was;
}

}  // namespace

extern "C" {
void* __real_aligned_alloc(std::size_t alignment, std::size_t nbytes);
void __real_free(void* bytes);
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t nbytes) {
  return take(allocations_fail) ? nullptr : __real_aligned_alloc(alignment, nbytes);
}
void __wrap_free(void* bytes) { __real_free(bytes); }
int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  return take(sends_fail) ? MPI_ERR_OTHER : PMPI_Isend(bytes, count, type, to, tag, comm, request);
}
int MPI_Put(const void* bytes, int count, MPI_Datatype type, int to, MPI_Aint at, int target_count,
            MPI_Datatype target_type, MPI_Win window) {
  return take(sends_fail) ? MPI_ERR_OTHER : PMPI_Put(bytes, count, type, to, at, target_count, target_type, window);
}
}

namespace {

using namespace dace_redist;

constexpr double max_seconds = 10;  // until a failure is known everywhere

const int ranks = [] {
  MPI_Init(nullptr, nullptr);
  return comm_size(MPI_COMM_WORLD);
}();
const int rank = comm_rank(MPI_COMM_WORLD);
std::string strategy;

/// The part of a matrix of doubles that each rank sends to each other one.
struct MessageShape {
  Index rows, columns;
};
constexpr MessageShape tiny{4, 4}, small{16, 32}, medium{150, 256}, large{512, 768};  // 128 B, 4, 300 KiB, 3 MiB

/// A transfer from rows to columns, with its arrays.
class Transfer {
 public:
  Transfer(MessageShape shape, bool shared) : shape_(shape), shared_(shared) {
    const Index rows = shape.rows * ranks, columns = shape.columns * ranks;
    const TensorProblem tensor{Distribution({0, 2, 1, rows, columns, ranks, 0, -1, 0, 0, -1, 0}, "source"),
                               Distribution({0, 2, 1, rows, columns, ranks, -1, 0, 0, 0, -1, 0}, "target"),
                               sizeof(double)};
    plan_ = Plan::make(MPI_COMM_WORLD, [&] { return Problem{"progress", strategy, default_options(), {tensor}}; });
    const auto nbytes = static_cast<std::size_t>(shape.rows * shape.columns * ranks) * sizeof(double);
    for (double*& array : {std::ref(source_), std::ref(target_)})
      array = static_cast<double*>(shared ? allocate_array(nbytes, false, 0) : std::malloc(nbytes));
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() {
    plan_.reset();
    for (double* const array : {source_, target_}) shared_ ? free_array(array) : std::free(array);
  }

  void start() {
    fill();
    plan_->start(sources(), targets());
  }
  void wait() {
    plan_->wait();
    check();
  }
  void run() {
    fill();
    plan_->run(sources(), targets());
    check();
  }
  Plan& plan() { return *plan_; }

 private:
  const void* const* sources() const { return reinterpret_cast<const void* const*>(&source_); }
  void* const* targets() { return reinterpret_cast<void* const*>(&target_); }

  /// The value of an element is its position in the matrix, plus the number of the transfer. Optimised, as all other
  /// code is not: it would take half of the time.
  [[gnu::optimize("O2"), gnu::no_sanitize("address", "undefined")]] void fill() {
    ++number_;
    const Index count = shape_.rows * shape_.columns * ranks;
    for (Index i = 0; i < count; ++i) {
      source_[i] = static_cast<double>(count * rank + i + number_);
      target_[i] = -1;
    }
  }
  [[gnu::optimize("O2"), gnu::no_sanitize("address", "undefined")]] void check() const {
    const Index columns = shape_.columns * ranks;
    for (Index row = 0; row < shape_.rows * ranks; ++row)
      for (Index column = 0; column < shape_.columns; ++column)
        if (target_[row * shape_.columns + column] !=
            static_cast<double>(row * columns + rank * shape_.columns + column + number_))
          throw Error(text(strategy, ": row ", row, ", column ", column, " is wrong in transfer ", number_));
  }

  MessageShape shape_;
  bool shared_;
  PlanPointer plan_;
  double *source_ = nullptr, *target_ = nullptr;
  Index number_ = 0;
};

/// Even ranks wait for the first transfer first, odd ones for the second.
void check_orders() {
  for (const MessageShape shape : {small, medium, large})
    for (const bool shared : {false, true}) {
      Transfer first(shape, shared), second(shape, !shared);
      for (int round = 0; round < 3; ++round) {
        first.start();
        second.start();
        (rank % 2 == 0 ? first : second).wait();
        (rank % 2 == 0 ? second : first).wait();
      }
      MPI_Barrier(MPI_COMM_WORLD);  // others may still use the arrays of this rank
    }
}

/// Rank 0 starts a second transfer before the others have waited for the first one.
void check_starts() {
  const std::string tested = std::exchange(strategy, "Hierarchical");
  Transfer first(large, false);
  strategy = tested;
  Transfer second(small, false);
  first.start();
  if (rank > 0) first.wait();
  second.start();
  second.wait();
  if (rank == 0) first.wait();
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Rank 0 is blocked in MPI until rank 1 has waited for the transfer.
void check_blocked() {
  for (const MessageShape shape : {small, medium, large})
    for (const bool shared : {false, true}) {
      Transfer transfer(shape, shared);
      for (int round = 0; round < 3; ++round) {
        int token = 0;
        transfer.start();
        if (rank == 0) MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        transfer.wait();
        if (rank == 1) MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
}

/// Whether the strategy moves all messages through node-shared memory: none is sent.
bool messages_stay_on_node() {
  const bool uses_node = strategy == "Shared" || strategy == "Hierarchical" || strategy == "Aggregated";
  return uses_node && !std::getenv(node_ranks_variable);
}

/// As check_blocked(), with a sum: ranks add slices, and then exchange them.
void check_blocked_sum() {
  if (!messages_stay_on_node()) return;  // messages of MPI wait for the rank
  constexpr Index rows = 256, columns = 512;
  const Distribution everywhere({0, 2, 1, rows, columns, ranks, -1, -1, 0, 0, -1, 0});
  TensorProblem tensor{everywhere, everywhere, sizeof(double)};
  tensor.operation.source = tensor.operation.target = ElementType::float64;
  tensor.operation.reduction = Reduction::sum;
  const PlanPointer plan = Plan::make(MPI_COMM_WORLD, [&] {
    return Problem{"sum", strategy, default_options(), {tensor}};
  });
  std::vector<double> source(rows * columns, rank + 1.0), target(rows * columns, -1.0);
  const void* const sources[] = {source.data()};
  void* const targets[] = {target.data()};
  int token = 0;
  plan->start(sources, targets);
  if (rank == 0) MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  plan->wait();
  if (rank == 1) MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  const double sum = ranks * (ranks + 1) / 2.0;
  if (std::count(target.begin(), target.end(), sum) != rows * columns) throw Error(strategy + ": a sum is wrong");
  MPI_Barrier(MPI_COMM_WORLD);
}

std::list<Transfer*>& failed = *new std::list<Transfer*>;  // never freed: messages may still arrive

/// `work` fails on every rank, soon.
void fails(const std::string& what, const std::function<void()>& work) {
  std::string found = "no error";
  const double start = MPI_Wtime();
  try {
    const MayLeak failed_plans;
    work();
  } catch (const std::exception&) {
    found.clear();
  }
  const double seconds = MPI_Wtime() - start;
  if (found.empty() && seconds > max_seconds) found = text("an error after ", seconds, " s");
  all_or_none(MPI_COMM_WORLD, [&] {
    if (!found.empty()) throw Error(text(strategy, ", ", what, ": ", found));
  });
  Transfer again(medium, false);
  again.run();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::printf("%s: %s is known everywhere\n", strategy.c_str(), what.c_str());
}

/// A failure on rank 0, as it begins its part of a transfer; of a send, on the last rank, which no rank can finish
/// without: with nodes of two ranks it is alone on its node, so that its first message and all that follow go by MPI.
void check_failures() {
  for (const bool started : {false, true}) {
    const auto move = [started](Transfer& transfer) {
      if (!started) return transfer.run();
      transfer.start();
      transfer.wait();
    };
    const std::string how = started ? " of a transfer that was started" : "";
    fails("a null array" + how, [&] {
      Transfer& transfer = *failed.emplace_back(new Transfer(medium, false));
      if (rank > 0) return move(transfer);
      transfer.plan().fail("an array is null");
      throw Error("an array is null");
    });
    if (messages_stay_on_node()) continue;
    fails("a failing send" + how, [&] {
      Transfer& transfer = *failed.emplace_back(new Transfer(medium, false));
      sends_fail = rank == ranks - 1;
      move(transfer);
    });
  }
  if (strategy != "Pack" && strategy != "Pipelined" && strategy != "RMA") return;
  fails("missing memory", [&] {
    allocations_fail = rank == 0;
    Transfer transfer(medium, false);
  });
}

/// Many ranks on one node.
void check_many() {
  Transfer ordinary(tiny, false), shared(tiny, true);
  for (int round = 0; round < 5; ++round) {
    ordinary.run();
    shared.start();
    ordinary.start();
    shared.wait();
    ordinary.wait();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void check(const std::string& name) {
  if (name == "orders") {
    check_starts();
    return check_orders();
  }
  if (name == "blocked") {
    check_blocked();
    return check_blocked_sum();
  }
  if (name == "failures") return check_failures();
  if (name == "many") return check_many();
  throw Error("usage: see the file");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw Error("usage: see the file");
    std::istringstream strategies(argv[2]);
    while (std::getline(strategies, strategy, ',')) {
      std::istringstream names(argv[1]);
      for (std::string name; std::getline(names, name, ',');) check(name);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) std::printf("all transfers are right\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
