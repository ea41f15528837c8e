// What goes wrong is said on every rank: plans the ranks do not agree on, arrays that do not fit, MPI calls that fail.
//
// Usage: mpiexec -n RANKS mpi_errors (at least 2 ranks)

#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <list>

#include "core/agreement.hpp"
#include "mpi_leaks.hpp"
#include "plan/plan.hpp"

namespace {

const char* failing_call = "";  // it does its work and then says that it failed

int outcome(int code, const char* call) { return std::strcmp(call, failing_call) == 0 ? MPI_ERR_OTHER : code; }

}  // namespace

#define DACE_REDIST_MAY_FAIL(NAME, PARAMETERS, ARGUMENTS) \
  extern "C" int NAME PARAMETERS { return outcome(P##NAME ARGUMENTS, #NAME); }

DACE_REDIST_MAY_FAIL(MPI_Isend, (const void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
                     (a, b, c, d, e, f, g))
DACE_REDIST_MAY_FAIL(MPI_Irecv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
                     (a, b, c, d, e, f, g))
DACE_REDIST_MAY_FAIL(MPI_Testsome, (int a, MPI_Request* b, int* c, int* d, MPI_Status* e), (a, b, c, d, e))
DACE_REDIST_MAY_FAIL(MPI_Win_allocate, (MPI_Aint a, int b, MPI_Info c, MPI_Comm d, void* e, MPI_Win* f),
                     (a, b, c, d, e, f))
DACE_REDIST_MAY_FAIL(MPI_Win_test, (MPI_Win a, int* b), (a, b))
DACE_REDIST_MAY_FAIL(MPI_Type_commit, (MPI_Datatype * a), (a))
DACE_REDIST_MAY_FAIL(MPI_Comm_dup, (MPI_Comm a, MPI_Comm* b), (a, b))

namespace {

using namespace dace_redist;

/// A problem of one tensor that tests can spoil.
struct Request {
  std::string strategy = "Pack";
  Index element_bytes = 4;
  Options options = default_options();
  Encoding source, target;
  LocalArray source_array{{8, 8}, {8, 1}}, target_array{{8, 8}, {8, 1}};

  Problem problem() const {
    TensorProblem tensor{Distribution(source, "source"), Distribution(target, "target"), element_bytes};
    tensor.source_array = source_array;
    tensor.target_array = target_array;
    return {"errors", strategy, options, {tensor}};
  }
};

PlanPointer make_plan(const Request& request) {
  return Plan::make(MPI_COMM_WORLD, [&] { return request.problem(); });
}

/// Moves one array.
void run(Plan& plan, const std::vector<float>& source, std::vector<float>& target) {
  const void* const sources[] = {source.data()};
  void* const targets[] = {target.data()};
  plan.run(sources, targets);
}

auto& kept_plans = *new std::list<Plan*>;  // that failed; never freed

/// A call of MPI fails as long as this lives.
struct Failing {
  explicit Failing(const char* call) { failing_call = call; }
  ~Failing() { failing_call = ""; }
};

/// Two grids of all ranks; rows to columns of 8 x 8 elements: on up to 4 ranks each sends to and receives from all.
class Checker {
 public:
  Checker() : ranks_(comm_size(MPI_COMM_WORLD)), rank_(comm_rank(MPI_COMM_WORLD)) {}

  Request plain() const {
    Request request;
    request.source = {0, 2, 1, 8, 8, ranks_, 0, -1, 0, 0, -1, 0};
    request.target = {0, 2, 1, 8, 8, ranks_, -1, 0, 0, 0, -1, 0};
    return request;
  }

  /// `work` must throw an Error that contains `expected`, on this rank; if it does not, all ranks raise.
  void raises(const std::string& expected, const std::function<void()>& work) {
    std::string wrong = text("no error, expected: ", expected);
    try {
      work();
    } catch (const Error& error) {
      const bool found = std::string(error.what()).find(expected) != std::string::npos;
      wrong = found ? "" : text("expected: ", expected, "\n     got: ", error.what());
    }
    all_or_none(MPI_COMM_WORLD, [&] {
      if (!wrong.empty()) throw Error(wrong);
    });
    ++passed;
  }

  /// The last rank changes what it asks for.
  void disagrees(const std::string& expected, const std::function<void(Request&)>& change) {
    raises(text("the ranks differ: ", expected, " on rank ", ranks_ - 1), [&] {
      Request mine = plain();
      if (rank_ == ranks_ - 1) change(mine);
      make_plan(mine);
    });
    works("Pack");
  }

  /// All ranks, or the last one only, ask for what cannot be.
  void refused(const std::string& expected, bool everywhere, const std::function<void(Request&)>& change) {
    const bool here = everywhere || rank_ == ranks_ - 1;
    raises(here ? expected : text("on rank ", ranks_ - 1, ": ", expected), [&] {
      Request mine = plain();
      if (here) change(mine);
      make_plan(mine);
    });
    works("Pack");
  }

  /// A call of MPI fails on every rank, while the plan is made or run.
  void fails(const char* strategy, const char* call) {
    Request request = plain();
    request.strategy = strategy;
    // A failed run may still receive: its plan and arrays stay.
    std::vector<float>&source = kept_arrays_.emplace_back(64), &target = kept_arrays_.emplace_back(64);
    raises(text(call, " failed on rank "), [&] {  // here or, if that is known first, elsewhere
      PlanPointer plan;
      if (std::strcmp(call, "MPI_Isend") == 0) plan = make_plan(request);  // fails when run
      const Failing failing(call);
      const MayLeak kept_by_library;
      if (!plan) plan = make_plan(request);
      Plan& kept = *kept_plans.emplace_back(plan.release());
      run(kept, source, target);
    });
    works(strategy);
  }

  /// A communicator cannot be duplicated, and then it can.
  void fails_on_new_communicator() {
    MPI_Comm fresh = MPI_COMM_NULL;
    PMPI_Comm_dup(MPI_COMM_WORLD, &fresh);
    const auto make = [&] { Plan::make(fresh, [this] { return plain().problem(); }); };
    raises(text("MPI_Comm_dup failed on rank ", rank_), [&] {
      const Failing failing("MPI_Comm_dup");
      make();
    });
    make();
    ++passed;
    MPI_Comm_free(&fresh);
  }

  /// A right plan still works. The value of an element is its position.
  void works(const char* strategy) {
    Request request = plain();
    request.strategy = strategy;
    const auto plan = make_plan(request);
    std::vector<float> source(64, -1), target(64, -1);
    const Index rows = ceil_div(8, ranks_), columns = ceil_div(8, ranks_);
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < 8; ++column)
        source[static_cast<std::size_t>(row * 8 + column)] = static_cast<float>((row + rows * rank_) * 8 + column);
    run(*plan, source, target);
    for (Index row = 0; row < 8; ++row)
      for (Index column = 0; column < columns && column + columns * rank_ < 8; ++column)
        if (target[static_cast<std::size_t>(row * 8 + column)] !=
            static_cast<float>(row * 8 + column + columns * rank_))
          throw Error(text("after an error: row ", row, ", column ", column, " is wrong on rank ", rank_));
    ++passed;
  }

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  int passed = 0;

 private:
  int ranks_, rank_;
  std::list<std::vector<float>> kept_arrays_;
};

void check_disagreement(Checker& checker) {
  const std::string grid = text("[0] is ", checker.ranks(), " on rank 0 and 1");
  checker.disagrees("element size in bytes is 4 on rank 0 and 8", [](Request& mine) { mine.element_bytes = 8; });
  checker.disagrees(text("chunk_bytes is ", default_options().chunk_bytes, " on rank 0 and 5"),
                    [](Request& mine) { mine.options.chunk_bytes = 5; });
  checker.disagrees("depth is 8 on rank 0 and 5", [](Request& mine) { mine.options.depth = 5; });
  checker.disagrees("growth is 1 on rank 0 and 1.5", [](Request& mine) { mine.options.growth = 1.5; });
  checker.disagrees("max_message_bytes is 1073741824 on rank 0 and 9",
                    [](Request& mine) { mine.options.max_message_bytes = 9; });
  checker.disagrees("strategy is Pack on rank 0 and RMA", [](Request& mine) { mine.strategy = "RMA"; });
  checker.disagrees("source grid" + grid,
                    [](Request& mine) { mine.source = {0, 2, 1, 8, 8, 1, 0, -1, 0, 0, -1, 1, 0}; });
  checker.disagrees("source kind is 0 on rank 0 and 1", [](Request& mine) { mine.source = {1, 2, 8, 8, 8, 8, 0}; });
  checker.disagrees("source shape[1] is 8 on rank 0 and 9", [](Request& mine) {
    mine.source[4] = mine.target[4] = 9;
    mine.source_array = mine.target_array = {{8, 9}, {9, 1}};
  });
  checker.disagrees("source number of dimensions is 2 on rank 0 and 3", [ranks = checker.ranks()](Request& mine) {
    mine.source = {0, 3, 1, 8, 8, 1, ranks, 0, -1, -1, 0, 0, 0, -1, 0};
    mine.target = {0, 3, 1, 8, 8, 1, ranks, -1, 0, -1, 0, 0, 0, -1, 0};
    mine.source_array = mine.target_array = {{8, 8, 1}, {8, 1, 1}};
  });
  checker.disagrees("target number of grid axes is 1 on rank 0 and 2", [ranks = checker.ranks()](Request& mine) {
    mine.target = {0, 2, 2, 8, 8, ranks, 1, -1, 0, 0, 0, -1, -1, 0};
  });
  checker.disagrees("target dims[1] is 0 on rank 0 and -1", [](Request& mine) { mine.target[7] = -1; });
  checker.disagrees("target block[0] is 0 on rank 0 and -1", [](Request& mine) { mine.target[8] = -1; });
  checker.disagrees(text("target number of ranks is 0 on rank 0 and ", checker.ranks()),
                    [ranks = checker.ranks()](Request& mine) {
                      mine.target[11] = ranks;
                      for (int rank = 0; rank < ranks; ++rank) mine.target.push_back(rank);
                    });
}

void check_refusal(Checker& checker) {
  const int ranks = checker.ranks();
  checker.refused(text("the local source array of rank ", ranks - 1, " has shape (1, 1), but its part"), false,
                  [](Request& mine) {
                    mine.source_array = {{1, 1}, {1, 1}};
                  });
  checker.refused("array of rank", true, [](Request& mine) { mine.target_array = {{0, 0}, {8, 1}}; });
  checker.refused(text("the local source array of rank ", ranks - 1, " has strides (8, -1); none may be negative"),
                  false, [](Request& mine) {
                    mine.source_array = {{8, 8}, {8, -1}};
                  });
  checker.refused(text("the target distribution names ranks up to ", ranks, ", but the communicator has ", ranks), true,
                  [ranks](Request& mine) { mine.target[5] = ranks + 1; });
  checker.refused("source and target need one global shape, got (8, 8) and (8, 9)", true,
                  [](Request& mine) { mine.target[4] = 9; });
  checker.refused("source: incomplete description", true, [](Request& mine) { mine.source.clear(); });
  checker.refused("target: grid axis 0 is used twice", true, [](Request& mine) { mine.target[6] = 0; });
  const auto option = [&](const std::string& expected, auto Options::*member, auto value) {
    checker.refused(expected, true, [member, value](Request& mine) { mine.options.*member = value; });
  };
  option("option chunk_bytes must be from 1 to 4611686018427387904, got 0", &Options::chunk_bytes, Index{0});
  option("option depth must be from 1 to 65536, got 0", &Options::depth, Index{0});
  option("option threads must be from 0 to 65536, got -1", &Options::threads, Index{-1});
  option("option max_message_bytes must be from 1 to 2147483647, got -4", &Options::max_message_bytes, Index{-4});
  option("option slot_bytes must be from 1 to", &Options::slot_bytes, Index{0});
  option("option max_message_bytes must be from 1 to", &Options::max_message_bytes, Index{1} << 31);
  option("option growth must be from 1 to 1e+06, got nan", &Options::growth, std::numeric_limits<double>::quiet_NaN());
  checker.refused("the element size must be 1 byte or more, got 0", true,
                  [](Request& mine) { mine.element_bytes = 0; });
}

/// The largest options: they do no harm.
void check_large_options(Checker& checker) {
  Request request = checker.plain();
  request.options.chunk_bytes = Index{1} << 62;
  request.options.max_message_bytes = std::numeric_limits<int>::max();
  request.options.growth = 1e6;
  std::vector<float> source(64), target(64);
  for (const char* strategy : {"Pack", "Datatype", "Pipelined", "RMA"}) {
    request.strategy = strategy;
    run(*make_plan(request), source, target);
  }
  ++checker.passed;
}

void check_failure(Checker& checker) {
  checker.fails_on_new_communicator();
  checker.fails("RMA", "MPI_Win_allocate");
  checker.fails("RMA", "MPI_Win_test");
  checker.fails("Pack", "MPI_Isend");
  checker.fails("Pack", "MPI_Irecv");
  checker.fails("Pack", "MPI_Testsome");
  checker.fails("Datatype", "MPI_Type_commit");
  checker.fails("Datatype", "MPI_Testsome");
  checker.fails("Pipelined", "MPI_Isend");
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    Checker checker;
    check_disagreement(checker);
    check_refusal(checker);
    check_failure(checker);
    check_large_options(checker);
    if (checker.rank() == 0) std::printf("%d checks passed\n", checker.passed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm_rank(MPI_COMM_WORLD), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
