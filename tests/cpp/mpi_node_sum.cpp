// Sums of partial results over the ranks of a node: right in any layout, of shared and ordinary arrays.
//
// Usage: mpiexec -n RANKS mpi_node_sum

#include <complex>
#include <cstdio>
#include <vector>

#include "mpi_leaks.hpp"
#include "plan/plan.hpp"
#include "shm/arena.hpp"

namespace {

using namespace dace_redist;

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("rank %d: %s\n", comm_rank(MPI_COMM_WORLD), what.c_str());
}

constexpr Index rows = 7, columns = 4800;

/// A layout of a matrix in memory.
struct Layout {
  Index gap, step;  // elements after each row, and from column to column

  LocalArray array(Index width) const { return {{rows, width}, {width * step + gap, step}}; }
  Index at(Index width, Index row, Index column) const { return row * (width * step + gap) + column * step; }
  static constexpr Index max_count = rows * (columns * 3 + 5);
};

/// Sums of matrices that every rank has one of; each rank gets some columns, or all.
template <class T>
class Sums {
 public:
  Sums(ElementType type, bool everyone) : everyone_(everyone) {
    const Index ranks = comm_size(MPI_COMM_WORLD);
    TensorProblem tensor{Distribution({0, 2, 1, rows, columns, ranks, -1, -1, 0, 0, -1, 0}, "source"),
                         Distribution({0, 2, 1, rows, columns, ranks, -1, everyone ? -1 : 0, 0, 0, -1, 0}, "target"),
                         static_cast<Index>(sizeof(T))};
    tensor.operation.source = tensor.operation.target = type;
    tensor.operation.reduction = Reduction::sum;
    plan_ = Plan::make(MPI_COMM_WORLD, [&] { return Problem{"sums", "SumReplicas", default_options(), {tensor}}; });
  }

  void check_sums(T* source, T* target, Layout from, Layout to, const std::string& what) {
    const Index ranks = comm_size(MPI_COMM_WORLD), rank = comm_rank(MPI_COMM_WORLD);
    const Index width = everyone_ ? columns : columns / ranks, first = everyone_ ? 0 : rank * width;
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < columns; ++column)
        source[from.at(columns, row, column)] = value(rank, row, column);
    std::fill(target, target + Layout::max_count, T(99));
    plan_->set_arrays({from.array(columns)}, {to.array(width)});
    const void* const sources[] = {source};
    void* const targets[] = {target};
    plan_->run(sources, targets);
    std::vector<T> expected(static_cast<std::size_t>(Layout::max_count), T(99));
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < width; ++column) {
        T sum(0);
        for (Index one = 0; one < ranks; ++one) sum += value(one, row, first + column);
        expected[static_cast<std::size_t>(to.at(width, row, column))] = sum;
      }
    expect(std::equal(expected.begin(), expected.end(), target), what);
  }

 private:
  static T value(Index rank, Index row, Index column) {
    return T(static_cast<float>((rank + 1) * (row * 3 + column % 1000)));
  }

  bool everyone_;
  PlanPointer plan_;
};

template <class T>
void check_type(ElementType type) {
  const Index nbytes = Layout::max_count * static_cast<Index>(sizeof(T));
  T* const first = static_cast<T*>(allocate_anywhere(nbytes));
  T* const second = static_cast<T*>(allocate_anywhere(nbytes));
  std::vector<T> alone(static_cast<std::size_t>(Layout::max_count)), other = alone;
  T* const mixed = comm_rank(MPI_COMM_WORLD) == 0 ? alone.data() : first;  // ordinary on one rank
  for (const bool everyone : {false, true}) {
    Sums<T> sums(type, everyone);
    sums.check_sums(first, second, {0, 1}, {0, 1}, "packed arrays");
    sums.check_sums(first, other.data(), {5, 1}, {0, 1}, "rows with gaps");
    sums.check_sums(first, second, {0, 2}, {3, 1}, "single elements");
    sums.check_sums(mixed, second, {0, 1}, {0, 3}, "an ordinary array among shared ones");
    sums.check_sums(alone.data(), other.data(), {0, 1}, {0, 1}, "ordinary arrays");
    for (int round = 0; round < 20; ++round)
      sums.check_sums(round % 3 == 0 ? first : mixed, second, {0, 1}, {0, 1}, "many sums");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (T* array : {first, second}) free_anywhere(array);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check_type<double>(ElementType::float64);
  check_type<float>(ElementType::float32);
  check_type<std::complex<double>>(ElementType::complex128);
  check_type<std::int32_t>(ElementType::int32);
  int total = 0;
  MPI_Reduce(&failures, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (comm_rank(MPI_COMM_WORLD) == 0 && total == 0) std::printf("all sums are right\n");
  MPI_Finalize();
  return total != 0;
}
