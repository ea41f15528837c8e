// What goes wrong is said on every rank: plans the ranks do not agree on, arrays that do not fit, MPI calls that fail.
//
// Usage: mpiexec -n RANKS mpi_errors (at least 2 ranks)

#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <list>

#include "mpi_leaks.hpp"
#include "plan/registry.hpp"

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
DACE_REDIST_MAY_FAIL(MPI_Waitall, (int a, MPI_Request* b, MPI_Status* c), (a, b, c))
DACE_REDIST_MAY_FAIL(MPI_Waitsome, (int a, MPI_Request* b, int* c, int* d, MPI_Status* e), (a, b, c, d, e))
DACE_REDIST_MAY_FAIL(MPI_Win_allocate, (MPI_Aint a, int b, MPI_Info c, MPI_Comm d, void* e, MPI_Win* f),
                     (a, b, c, d, e, f))
DACE_REDIST_MAY_FAIL(MPI_Win_wait, (MPI_Win a), (a))
DACE_REDIST_MAY_FAIL(MPI_Type_commit, (MPI_Datatype * a), (a))
DACE_REDIST_MAY_FAIL(MPI_Comm_dup, (MPI_Comm a, MPI_Comm* b), (a, b))

namespace {

using namespace dace_redist;

/// Two grids of all ranks; rows to columns of 8 x 8 elements: on up to 4 ranks each sends to and receives from all.
class Checker {
 public:
  Checker() : ranks_(comm_size(MPI_COMM_WORLD)), rank_(comm_rank(MPI_COMM_WORLD)) {}

  Description plain() const {
    Description description{"errors", "Pack", 4, {}, {}, {}, {}, {}};
    description.source = {0, 2, 1, 8, 8, ranks_, 0, -1, 0, 0, -1, 0};
    description.target = {0, 2, 1, 8, 8, ranks_, -1, 0, 0, 0, -1, 0};
    description.source_local = {8, 8, 8, 1};
    description.target_local = {8, 8, 8, 1};
    return description;
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
  void disagrees(const std::string& expected, const std::function<void(Description&)>& change) {
    raises(text("the ranks differ: ", expected, " on rank ", ranks_ - 1), [&] {
      Description mine = plain();
      if (rank_ == ranks_ - 1) change(mine);
      find_strategy("Pack")(mine, MPI_COMM_WORLD);
    });
    works("Pack");
  }

  /// All ranks, or the last one only, ask for what cannot be.
  void refused(const std::string& expected, bool everywhere, const std::function<void(Description&)>& change) {
    const bool here = everywhere || rank_ == ranks_ - 1;
    raises(here ? expected : text("on rank ", ranks_ - 1, ": ", expected), [&] {
      Description mine = plain();
      if (here) change(mine);
      find_strategy("Pack")(mine, MPI_COMM_WORLD);
    });
    works("Pack");
  }

  /// A call of MPI fails on every rank, while the plan is made or run.
  void fails(const char* strategy, const char* call) {
    char mpi_text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(MPI_ERR_OTHER, mpi_text, &length);
    // What a failed run started may still arrive: its plan and arrays stay.
    std::vector<float>&source = kept_arrays_.emplace_back(64), &target = kept_arrays_.emplace_back(64);
    raises(text(call, " failed on rank ", rank_, ": ", mpi_text), [&] {
      auto& plan = kept_plans_.emplace_back();
      if (std::strcmp(call, "MPI_Isend") == 0 || std::strcmp(call, "MPI_Win_wait") == 0)
        plan = find_strategy(strategy)(plain(), MPI_COMM_WORLD);  // fails when run
      failing_call = call;
      try {
        if (!plan) plan = find_strategy(strategy)(plain(), MPI_COMM_WORLD);
        plan->run(source.data(), target.data());
        failing_call = "";
      } catch (const Error&) {
        failing_call = "";
        throw;
      }
    });
    works(strategy);
  }

  /// A right plan still works. The value of an element is its position.
  void works(const char* strategy) {
    const auto plan = find_strategy(strategy)(plain(), MPI_COMM_WORLD);
    std::vector<float> source(64, -1), target(64, -1);
    const Index rows = ceil_div(8, ranks_), columns = ceil_div(8, ranks_);
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < 8; ++column)
        source[static_cast<std::size_t>(row * 8 + column)] = static_cast<float>((row + rows * rank_) * 8 + column);
    plan->run(source.data(), target.data());
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
  std::list<std::unique_ptr<Plan>> kept_plans_;
};

void check_disagreement(Checker& checker) {
  const std::string grid = text("[0] is ", checker.ranks(), " on rank 0 and 1");
  checker.disagrees("element size in bytes is 4 on rank 0 and 8", [](Description& mine) { mine.element_bytes = 8; });
  checker.disagrees(text("chunk_bytes is ", Options{}.chunk_bytes, " on rank 0 and 5"),
                    [](Description& mine) { mine.options.chunk_bytes = 5; });
  checker.disagrees("depth is 8 on rank 0 and 5", [](Description& mine) { mine.options.depth = 5; });
  checker.disagrees("growth (1e-6) is 1000000 on rank 0 and 1500000",
                    [](Description& mine) { mine.options.growth = 1.5; });
  checker.disagrees("max_message_bytes is 1073741824 on rank 0 and 9",
                    [](Description& mine) { mine.options.max_message_bytes = 9; });
  checker.disagrees("strategy is Pack on rank 0 and RMA", [](Description& mine) { mine.strategy = "RMA"; });
  checker.disagrees("length of the source distribution is 12 on rank 0 and 13",
                    [](Description& mine) { mine.source = {0, 2, 1, 8, 8, 1, 0, -1, 0, 0, -1, 1, 0}; });
  checker.disagrees("source kind is 0 on rank 0 and 1", [](Description& mine) { mine.source[0] = 1; });
  checker.disagrees("source shape[1] is 8 on rank 0 and 9", [](Description& mine) { mine.source[4] = 9; });
  checker.disagrees("source grid" + grid, [](Description& mine) { mine.source[5] = 1; });
  checker.disagrees("target number of dimensions is 2 on rank 0 and 3", [](Description& mine) { mine.target[1] = 3; });
  checker.disagrees("target number of grid axes is 1 on rank 0 and 2", [](Description& mine) { mine.target[2] = 2; });
  checker.disagrees("target dims[1] is 0 on rank 0 and -1", [](Description& mine) { mine.target[7] = -1; });
  checker.disagrees("target block[0] is 0 on rank 0 and -1", [](Description& mine) { mine.target[8] = -1; });
  checker.disagrees("target pins[0] is -1 on rank 0 and 0", [](Description& mine) { mine.target[10] = 0; });
  checker.disagrees("target number of ranks is 0 on rank 0 and 1", [](Description& mine) {
    mine.target[11] = 1;
    mine.target.push_back(0);
  });
}

void check_refusal(Checker& checker) {
  const int ranks = checker.ranks();
  checker.refused(text("the local source array of rank ", ranks - 1, " has shape (1, 1), but its part"), false,
                  [](Description& mine) {
                    mine.source_local = {1, 1, 1, 1};
                  });
  checker.refused("array of rank", true, [](Description& mine) { mine.target_local = {0, 0, 8, 1}; });
  checker.refused(text("the local source array of rank ", ranks - 1, " has strides (8, -1); none may be negative"),
                  false, [](Description& mine) {
                    mine.source_local = {8, 8, 8, -1};
                  });
  checker.refused(text("the target distribution names ranks up to ", ranks, ", but the communicator has ", ranks), true,
                  [ranks](Description& mine) { mine.target[5] = ranks + 1; });
  checker.refused("source and target need one global shape, got (8, 8) and (8, 9)", true,
                  [](Description& mine) { mine.target[4] = 9; });
  checker.refused("source: incomplete description", true, [](Description& mine) { mine.source.clear(); });
  checker.refused("target: grid axis 0 is used twice", true, [](Description& mine) { mine.target[6] = 0; });
  const auto option = [&](const std::string& expected, auto Options::*member, auto value) {
    checker.refused(expected, true, [member, value](Description& mine) { mine.options.*member = value; });
  };
  option("option chunk_bytes must be from 1 to 4611686018427387904, got 0", &Options::chunk_bytes, Index{0});
  option("option depth must be from 1 to 65536, got 0", &Options::depth, Index{0});
  option("option threads must be from 0 to 65536, got -1", &Options::threads, Index{-1});
  option("option max_message_bytes must be from 1 to 2147483647, got -4", &Options::max_message_bytes, Index{-4});
  option("option slot_bytes must be from 1 to", &Options::slot_bytes, Index{0});
  option("option max_message_bytes must be from 1 to", &Options::max_message_bytes, Index{1} << 31);
  option("option growth must be from 1 to 1e+06, got nan", &Options::growth, std::numeric_limits<double>::quiet_NaN());
  checker.refused("the element size must be 1 byte or more, got 0", true,
                  [](Description& mine) { mine.element_bytes = 0; });
}

/// The largest options: they do no harm.
void check_large_options(Checker& checker) {
  Description description = checker.plain();
  description.options.chunk_bytes = Index{1} << 62;
  description.options.max_message_bytes = std::numeric_limits<int>::max();
  description.options.growth = 1e6;
  std::vector<float> source(64), target(64);
  for (const char* strategy : {"Pack", "Datatype", "Pipelined", "RMA"})
    find_strategy(strategy)(description, MPI_COMM_WORLD)->run(source.data(), target.data());
  ++checker.passed;
}

void check_failure(Checker& checker) {
  checker.fails("Pack", "MPI_Comm_dup");
  checker.fails("Pack", "MPI_Isend");
  checker.fails("Pack", "MPI_Irecv");
  checker.fails("Pack", "MPI_Waitsome");
  checker.fails("Datatype", "MPI_Type_commit");
  checker.fails("Datatype", "MPI_Waitall");
  checker.fails("Pipelined", "MPI_Isend");
  checker.fails("RMA", "MPI_Win_allocate");
  checker.fails("RMA", "MPI_Win_wait");
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    Checker checker;
    check_disagreement(checker);
    check_refusal(checker);
    check_large_options(checker);
    check_failure(checker);
    if (checker.rank() == 0) std::printf("%d checks passed\n", checker.passed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm_rank(MPI_COMM_WORLD), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
