// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Schur form of a random upper Hessenberg matrix by ScaLAPACK's pdhseqr, with ScaLAPACK's own pdgemr2d and the
/// preloaded one in turn. A line for each run: whether it is the preloaded one, the seconds of each call of pdgemr2d,
/// those of the slowest rank, and the seconds of pdhseqr. Arguments: rows, runs by each, file of ScaLAPACK.

#include <dlfcn.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" {

void blacs_get_(const int*, const int*, int*);
void blacs_gridinit_(int*, const char*, const int*, const int*);
void Cpdgemr2d(int, int, double*, int, int, int*, double*, int, int, int*, int);
void pdhseqr_(const char*, const char*, const int*, const int*, const int*, double*, const int*, double*, double*,
              double*, const int*, double*, const int*, int*, const int*, int*);
}

namespace {

decltype(&Cpdgemr2d) copy_matrix = Cpdgemr2d;
std::vector<double> seconds;

}  // namespace

/// Takes the place of ScaLAPACK's for pdhseqr.
extern "C" void pdgemr2d_(int* m, int* n, double* a, int* ia, int* ja, int* desca, double* b, int* ib, int* jb,
                          int* descb, int* context) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  copy_matrix(*m, *n, a, *ia, *ja, desca, b, *ib, *jb, descb, *context);
  seconds.push_back(MPI_Wtime() - start);
}

namespace {

/// The matrix, by columns, of which this rank has every second block on two ranks.
class Eigenvalues {
 public:
  Eigenvalues(int n, int ranks, int rank) : n_(n) {
    constexpr int zero = 0, block = 64;
    blacs_get_(&zero, &zero, descriptor_ + 1);
    blacs_gridinit_(descriptor_ + 1, "R", &one, &ranks);
    for (const int at : {2, 3, 8}) descriptor_[at] = n;
    descriptor_[4] = descriptor_[5] = block;
    std::mt19937 generator;  // equal numbers on all ranks
    for (int column = 0; column < n; ++column)
      for (int row = 0; row < n; ++row) {
        const double value = static_cast<double>(generator()) / 2147483648.0 - 1;
        if (column / block % ranks == rank) matrix_.push_back(row <= column + 1 ? value : 0);
      }
  }

  void compute() {
    std::vector<double> h = matrix_;
    const int work_size = static_cast<int>(work_.size()), integer_size = static_cast<int>(integers_.size());
    int info = -1;
    const double start = MPI_Wtime();
    pdhseqr_("S", "I", &n_, &one, &n_, h.data(), descriptor_, real_.data(), imaginary_.data(), vectors_.data(),
             descriptor_, work_.data(), &work_size, integers_.data(), &integer_size, &info);
    seconds.push_back(MPI_Wtime() - start);
    if (info != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  static constexpr int one = 1;
  int n_, descriptor_[9] = {1};
  std::vector<double> matrix_, vectors_ = std::vector<double>(size()), work_ = std::vector<double>(16 * size());
  std::vector<double> real_ = std::vector<double>(size()), imaginary_ = std::vector<double>(size());
  std::vector<int> integers_ = std::vector<int>(size());
  std::size_t size() const { return static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_); }
};

void pin_to_core(int rank) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(static_cast<std::size_t>(rank % sysconf(_SC_NPROCESSORS_ONLN)), &core);
  sched_setaffinity(0, sizeof core, &core);
}

void print(bool is_preloaded, int rank) {
  MPI_Reduce(rank == 0 ? MPI_IN_PLACE : seconds.data(), seconds.data(), static_cast<int>(seconds.size()), MPI_DOUBLE,
             MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf("%d", is_preloaded);
    for (const double time : seconds) std::printf(" %.9f", time);
    std::printf("\n");
  }
  seconds.clear();
}

}  // namespace

int main(int argc, char** argv) {
  int ranks, rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  pin_to_core(rank);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  void* const scalapack = dlopen(argv[3], RTLD_LAZY | RTLD_NOLOAD);
  const auto stock = reinterpret_cast<decltype(copy_matrix)>(dlsym(scalapack, "Cpdgemr2d"));
  Eigenvalues problem(std::atoi(argv[1]), ranks, rank);
  for (int run = -1; run < 2 * std::atoi(argv[2]); ++run) {
    const bool is_preloaded = run >= 0 && (run % 4 == 0 || run % 4 == 3);  // alternately the first of two
    copy_matrix = is_preloaded ? Cpdgemr2d : stock;
    problem.compute();
    if (run < 0)
      seconds.clear();  // warm-up
    else
      print(is_preloaded, rank);
  }
  MPI_Finalize();
}
