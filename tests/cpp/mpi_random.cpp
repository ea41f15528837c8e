// Random redistributions of one or several tensors by every strategy. Linked with toy_transport.cpp, whose strategy is
// one of them.
//
// Usage: mpiexec -n RANKS mpi_random FOLDER CASES, with the folder's files of tests/case_files.py, of two layouts

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "case_file.hpp"
#include "mpi_leaks.hpp"
#include "plan/plan.hpp"

namespace {

using namespace dace_redist;

std::string describe(const Problem& problem) {
  const Options& options = problem.options;
  std::string all = text(problem.strategy, ", chunk_bytes ", options.chunk_bytes, ", depth ", options.depth,
                         ", growth ", options.growth, ", threads ", options.threads, ", slot_bytes ",
                         options.slot_bytes, ", max_message_bytes ", options.max_message_bytes);
  for (const TensorProblem& tensor : problem.tensors) {
    const ElementOperation& operation = tensor.operation;
    all +=
        text("; ", tensor.element_bytes, "-byte elements, ", element_name(operation.source), " to ",
             element_name(operation.target), ", alpha ", operation.alpha.real(), ", beta ", operation.beta.real(),
             ", op ", reduction_names[static_cast<std::size_t>(operation.reduction)], ", source ",
             tuple_text(tensor.source.encoding()), " in local array ", tuple_text(tensor.source_array.shape),
             " with strides ", tuple_text(tensor.source_array.strides), ", target ",
             tuple_text(tensor.target.encoding()), " in local array ", tuple_text(tensor.target_array.shape),
             " with strides ", tuple_text(tensor.target_array.strides), ", index map ", tuple_text(tensor.index_map));
  }
  return all;
}

class Checker {
 public:
  /// Runs one strategy on one case, several times, then with other local arrays.
  void check_strategy(Case& the, const char* strategy) {
    passed += layouts * runs;
    if (the.comm == MPI_COMM_NULL) return;
    Problem problem{"random", strategy, the.options, {}};
    for (const Move& move : the.moves)
      problem.tensors.push_back({Distribution(move.source, "source"), Distribution(move.target, "target"),
                                 move.element_bytes, move.index_map, move.operation});
    PlanPointer plan;
    for (std::size_t layout = 0; layout < layouts; ++layout) {
      std::vector<MovedArrays*> arrays;
      std::vector<LocalArray> sources, targets;
      for (std::size_t t = 0; t < the.moves.size(); ++t) {
        arrays.push_back(&the.moves[t].layouts[layout]);
        sources.push_back(problem.tensors[t].source_array = arrays[t]->source.local_array());
        targets.push_back(problem.tensors[t].target_array = arrays[t]->target.local_array());
      }
      if (plan)
        plan->set_arrays(sources, targets);
      else
        plan = Plan::make(the.comm, [&] { return problem; });
      check_runs(*plan, arrays, text("case ", the.number, ": ", describe(problem)));
    }
  }

  static constexpr int layouts = 2, runs = 2;
  long passed = 0;

 private:
  static void check_runs(Plan& plan, const std::vector<MovedArrays*>& arrays, const std::string& what) {
    std::vector<const void*> sources;
    std::vector<void*> targets;
    for (MovedArrays* one : arrays) {
      sources.push_back(one->source.data());
      targets.push_back(one->target.data());
    }
    for (int run = 0; run < runs; ++run) {
      for (MovedArrays* one : arrays) {
        one->source.reset();
        one->target.reset();
      }
      if (run == 0) {
        plan.run(sources.data(), targets.data());
      } else {
        plan.start(sources.data(), targets.data());
        plan.wait();
      }
      for (std::size_t t = 0; t < arrays.size(); ++t) {
        if (!arrays[t]->target.is_right()) throw Error(text("target ", t, " is wrong after run ", run, " of ", what));
        if (!arrays[t]->source.is_right())
          throw Error(text("source ", t, " was written to by run ", run, " of ", what));
      }
    }
  }
};

void check_all(const std::string& folder, Index cases) {
  MPI_Comm reversed = MPI_COMM_NULL, some = MPI_COMM_NULL;
  const int rank = comm_rank(MPI_COMM_WORLD);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 3 == 2 ? MPI_UNDEFINED : 0, rank, &some);
  Reader reader(text(folder, "/", rank));
  Checker checker;
  for (Index number = 0; number < cases; ++number) {
    Case the = read_case(reader, number, {MPI_COMM_WORLD, reversed, some}, Checker::layouts);
    const std::string node_ranks = std::to_string(number % 4);
    for (const char* strategy :
         {"Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Shared", "Hierarchical", "Aggregated", "Toy"}) {
      setenv(node_ranks_variable, strategy == std::string("Shared") ? "0" : node_ranks.c_str(), 1);
      checker.check_strategy(the, strategy);
    }
  }
  MPI_Comm_free(&reversed);
  if (some != MPI_COMM_NULL) MPI_Comm_free(&some);
  long total = 0;
  MPI_Reduce(&checker.passed, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%ld checks passed\n", total);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    if (argc != 3) throw Error("usage: see the file");
    check_all(argv[1], std::atoll(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm_rank(MPI_COMM_WORLD), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
