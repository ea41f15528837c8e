// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Products of matrices by COSMA, in its own distributions, for products.py.

#include <cosma/multiply.hpp>
#include <cosma/statistics.hpp>
#include <iostream>

namespace {

struct Product {
  cosma::Strategy strategy;
  MPI_Comm comm;
  cosma::CosmaMatrix<double> a, b, c;

  Product(int n, int ranks, int rank, MPI_Comm given)
      : strategy(n, n, n, static_cast<std::size_t>(ranks)),
        comm(given),
        a('A', strategy, rank),
        b('B', strategy, rank),
        c('C', strategy, rank) {
    for (auto* matrix : {&a, &b}) std::fill_n(matrix->matrix_pointer(), matrix->matrix_size(), 1.0);
  }
};

}  // namespace

/// Makes n x n matrices of ones. Collective.
extern "C" Product* cosma_product(int n, int comm) {
  const MPI_Comm given = MPI_Comm_f2c(comm);
  int ranks = 0, rank = 0;
  MPI_Comm_size(given, &ranks);
  MPI_Comm_rank(given, &rank);
  return new Product(n, ranks, rank, given);
}

/// Multiplies them; returns the first element of this rank's part. Collective.
extern "C" double cosma_multiply(Product* product) {
  cosma::multiply(product->a, product->b, product->c, product->strategy, product->comm, 1.0, 0.0);
  return product->c.matrix_size() > 0 ? *product->c.matrix_pointer() : 0.0;
}

/// Mean bytes of a rank for a product of n x n matrices, as COSMA's program `cosma_statistics` counts them.
extern "C" double cosma_bytes(int n, int ranks) {
  std::streambuf* const shown = std::cout.rdbuf(nullptr);  // it prints
  cosma::total_communication = 0;
  cosma::multiply(cosma::Strategy(n, n, n, static_cast<std::size_t>(ranks)), 1);
  std::cout.rdbuf(shown);
  std::cout.clear();
  return 8.0 * static_cast<double>(cosma::total_communication) / ranks;
}
