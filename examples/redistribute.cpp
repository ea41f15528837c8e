// Moves a matrix: rows to columns. mpicxx -std=c++17 redistribute.cpp $(dace-redist config --cflags --libs)
#include <dace_redist.hpp>
#include <iostream>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  try {
    const dr::Distribution rows({1000, 700}, {size, 1}), columns({1000, 700}, {1, size});
    dr::Memory<double> a(rows.local_count(rank)), b(columns.local_count(rank));  // or std::vector<double>
    for (double& element : a) element = rank;

    dr::Plan<double> plan(rows, columns, MPI_COMM_WORLD);
    plan.execute(a, b);  // as often as wanted
    if (rank == 0)
      std::cout << "the first column came from ranks " << b[0] << " to " << b[999 * columns.local_shape(0)[1]] << '\n';
  } catch (const dr::Error& error) {
    std::cerr << error.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, error.status);
  }
  return MPI_Finalize();
}
