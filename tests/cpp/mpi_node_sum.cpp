// Sums over the ranks of a node: right in any layout, and left to the caller, on all ranks, where an array is not
// shared.
//
// Usage: mpiexec -n RANKS mpi_node_sum

#include <complex>
#include <cstdio>

#include "core/mpi.hpp"
#include "mpi_leaks.hpp"
#include "node/node_sum.hpp"
#include "node/shared_array.hpp"

namespace {

using namespace dace_redist;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("rank %d: %s\n", comm_rank(MPI_COMM_WORLD), what);
}

/// Rows of an array [rows][columns] with a gap after each: one rank's share of the sums.
template <class T>
class Sums {
 public:
  explicit Sums(ElementType type) : ranks_(comm_size(MPI_COMM_WORLD)), rank_(comm_rank(MPI_COMM_WORLD)) {
    ElementOperation sum;
    sum.source = sum.target = type;
    sum.reduction = Reduction::sum;
    steps_.set(sum, static_cast<Index>(sizeof(T)));
    sum_.allocate();
    const SegmentEndpoint mine = sum_.endpoint();
    std::vector<SegmentEndpoint> all(static_cast<std::size_t>(ranks_));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    sum_.connect(all, rank_, MPI_COMM_WORLD);
  }

  /// Adds columns of all ranks' arrays. \param step  of the columns in memory.
  bool add(T* source, Index gap, Index step) {
    const Index mine = columns / ranks_, stride = columns * step + gap;
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < columns; ++column)
        source[row * stride + column * step] = value(rank_, row, column);
    StridedBlock block;
    block.ndim = 2;
    block.counts = {rows, mine};
    block.source_strides = {stride, step};
    block.source_offset = rank_ * mine * step;
    target_.assign(static_cast<std::size_t>(rows * mine), T(99));
    const bool added = sum_.add(block, {{stride, step}}, steps_, reinterpret_cast<const char*>(source),
                                reinterpret_cast<char*>(target_.data()));
    if (!added) return false;
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < mine; ++column) {
        T wanted(0);
        for (int rank = 0; rank < ranks_; ++rank) wanted += value(rank, row, rank_ * mine + column);
        if (target_[static_cast<std::size_t>(row * mine + column)] != wanted) {
          expect(false, "a wrong sum");
          return true;
        }
      }
    return true;
  }

  int rank() const { return rank_; }
  static constexpr Index rows = 7, columns = 4800, most = rows * (columns * 2 + 5);

 private:
  static T value(int rank, Index row, Index column) { return T(static_cast<float>((rank + 1) * (row * 3 + column))); }

  int ranks_, rank_;
  ReductionSteps steps_;
  NodeSum sum_;
  std::vector<T> target_;
};

template <class T>
void check_type(ElementType type) {
  Sums<T> sums(type);
  const Index nbytes = Sums<T>::most * static_cast<Index>(sizeof(T));
  T* const first = static_cast<T*>(allocate_shared(nbytes));
  T* const second = static_cast<T*>(allocate_shared(nbytes));
  T* const alone = static_cast<T*>(allocate_private(nbytes));
  expect(sums.add(first, 0, 1), "packed arrays are not added");
  expect(sums.add(first, 5, 1), "rows with gaps are not added");
  expect(sums.add(second + 3, 0, 2), "single elements inside of an array are not added");
  expect(!sums.add(sums.rank() == 0 ? alone : first, 0, 1), "an array is added that others cannot see");
  expect(!sums.add(first, sums.rank() == 0 ? 5 : 0, 1), "arrays of different strides are added");
  for (int round = 0; round < 100; ++round) sums.add(round % 3 == 0 ? first : second, 0, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  for (T* array : {first, second, alone}) free_shared(array);
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
