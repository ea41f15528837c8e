// Plans of generated programs after something went wrong: one goes on with the arrays that it had if others do not
// fit, and one that is destroyed with a transfer under way stays, with its buffers.
//
// Usage: mpiexec -n 2 mpi_program_plan

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "dace_redist_program.hpp"

namespace {
int freed = 0;  // datatypes
}

extern "C" int MPI_Type_free(MPI_Datatype* type) {
  ++freed;
  return PMPI_Type_free(type);
}

namespace {

using namespace dace_redist::program;

constexpr std::int64_t partial_sums[] = {0, 2, 1, 4, 4, 2, -1, -1, 0, 0, -1, 0};
constexpr std::int64_t rows[] = {0, 2, 1, 4, 4, 2, 0, -1, 0, 0, -1, 0};
constexpr std::int64_t columns[] = {0, 2, 1, 4, 4, 2, -1, 0, 0, 0, -1, 0};
constexpr std::int64_t padded[] = {4, 4, 5, 1}, two_rows[] = {2, 4, 4, 1}, two_columns[] = {4, 2, 2, 1};
constexpr std::int64_t one_row[] = {1, 4, 4, 1};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

dr_options options() {
  dr_options defaults;
  dr_options_init(&defaults);
  return defaults;
}

void keep_the_arrays() {
  const dr_operation sum{DR_FLOAT64, DR_FLOAT64, {1, 0}, {0, 0}, 0, DR_SUM};
  const Arguments right{MPI_COMM_WORLD, partial_sums, padded, rows, two_rows, 8, options(), {}, sum};
  const Arguments wrong{MPI_COMM_WORLD, partial_sums, padded, rows, one_row, 8, options(), {}, sum};
  const std::vector<double> source(20, 3.0);
  std::vector<double> target(10);
  Plan plan("SumReplicas", "sum", "SumReplicas");
  plan.run(right, source.data(), target.data());
  std::string said;
  try {
    plan.run(wrong, source.data(), target.data());
  } catch (const std::exception& error) {
    said = error.what();
  }
  require(said.find("the local target array of rank") != std::string::npos, "no error of the wrong array");
  std::fill(target.begin(), target.end(), 0.0);
  plan.run(right, source.data(), target.data());
  require(std::count(target.begin(), target.end(), 6.0) == 8, "the sums are wrong after an error");
}

void stay_with_a_transfer_under_way() {
  static double source[8], target[8];  // where messages may arrive yet
  const Arguments move{MPI_COMM_WORLD, rows, two_rows, columns, two_columns, 8, options()};
  for (const bool waits : {true, false}) {
    auto plan = std::make_unique<Plan>("Redistribute", "move", "Datatype");
    plan->start(move, source, target, DR_PROGRESS_CALLS);
    if (waits) plan->wait();
    freed = 0;
    plan.reset();
    require((freed > 0) == waits, waits ? "a plan was not freed" : "a plan was freed with a transfer under way");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  keep_the_arrays();
  stay_with_a_transfer_under_way();
  MPI_Finalize();
}
