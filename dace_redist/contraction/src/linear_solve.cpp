// SPDX-License-Identifier: BSD-3-Clause
// Linear systems of generated programs, whose matrix every rank has as a whole.
#include <algorithm>
#include <exception>

#include "dace_redist_einsum.hpp"
#include "dace_redist_library.hpp"
#include "executor.hpp"
#include "gemm_plan.hpp"
#include "matrix.hpp"

namespace dace_redist::program {

using namespace contraction;
using program::Matrix;

namespace {

template <class T>
T& element(const Matrix& matrix, Index row, Index column) {
  return static_cast<T*>(const_cast<void*>(matrix.data))[row * matrix.row_stride + column * matrix.column_stride];
}

/// By LU factors with partial pivoting, for some columns at a time, which LAPACK takes in column-major order.
template <class T>
void solve(int n, Index columns, Matrix matrix, Matrix right, Matrix result, Workspace& workspace) {
  constexpr Index max_columns = 256;  // in the buffer, which stays in the cache
  const Index width = std::min(columns, max_columns), size = Index{n} * n;
  const Index nbytes = (size + n * width) * static_cast<Index>(sizeof(T));
  T* const factors = reinterpret_cast<T*>(workspace.reserve(nbytes + n * static_cast<Index>(sizeof(int))));
  T* const buffer = factors + size;
  int* const pivots = reinterpret_cast<int*>(buffer + n * width);
  for (Index j = 0; j < n; ++j)
    for (Index i = 0; i < n; ++i) factors[j * n + i] = element<T>(matrix, i, j);
  int info = 0;  // j: U(j, j), counted from 1, is 0
  blas::Routines<T>::getrf(&n, &n, factors, &n, pivots, &info);
  if (info != 0) fail("the ", n, " x ", n, " matrix is singular");
  for (Index first = 0; first < columns; first += width) {
    const int count = static_cast<int>(std::min(width, columns - first));
    for (Index k = 0; k < count; ++k)
      for (Index i = 0; i < n; ++i)
        buffer[k * n + i] = right.data ? element<T>(right, i, first + k) : T(i == first + k);
    blas::Routines<T>::getrs("N", &n, &count, factors, &n, pivots, buffer, &n, &info);
    for (Index k = 0; k < count; ++k)
      for (Index i = 0; i < n; ++i) element<T>(result, i, first + k) = buffer[k * n + i];
  }
}

}  // namespace

LinearSolver::LinearSolver(const char* statement, const char* element_type)
    : statement_(statement), element_type_(element_type), workspace_(std::make_unique<Workspace>()) {}
LinearSolver::~LinearSolver() = default;

void LinearSolver::run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result) {
  const auto [rows, n, columns] = extents;
  library::reporting(statement_, [&, rows = rows, n = n, columns = columns] {
    std::exception_ptr thrown;
    try {
      if (rows != n) fail("the matrix must be square, got ", rows, " rows and ", n, " columns");
      if (n > max_blas_extent) fail("LAPACK cannot solve for ", n, " unknowns");
      const library::Span span("solve", statement_.c_str());
      if (n > 0 && columns > 0)
        visit_inexact(element_type_, "cannot solve for elements of type ", [&](auto number) {
          solve<decltype(number)>(static_cast<int>(n), columns, matrix, right, result, *workspace_);
        });
    } catch (...) {
      thrown = std::current_exception();
    }
    library::throw_everywhere(comm, thrown);
  });
}

}  // namespace dace_redist::program
