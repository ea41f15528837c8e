// SPDX-License-Identifier: BSD-3-Clause
// Linear systems of generated programs, whose matrix every rank has as a whole.
#include <algorithm>
#include <complex>
#include <string>
#include <vector>

#include "blas.hpp"
#include "executor.hpp"
#include "gemm_plan.hpp"
#include "core/agreement.hpp"
#include "core/report.hpp"
#include "dace_redist_einsum.hpp"
#include "trace/trace.hpp"

namespace dace_redist::program {

class LinearSolver::Implementation {
 public:
  Implementation(const char* statement, const char* element_type)
      : statement_(statement), element_type_(element_type) {}

  void run(MPI_Comm comm, Index rows, Index n, Index columns, Matrix matrix, Matrix right, Matrix result) {
    reporting(statement_, [&] {
      all_or_none(comm, [&] {
        if (rows != n) throw Error(text("the matrix must be square, got ", rows, " rows and ", n, " columns"));
        if (n > max_blas_extent) throw Error(text("LAPACK cannot solve for ", n, " unknowns"));
        if (n == 0 || columns == 0) return;
        const trace::Span span("solve", statement_.c_str(), {});
        solve(static_cast<int>(n), columns, matrix, right, result);
      });
    });
  }

 private:
  void solve(int n, Index columns, Matrix matrix, Matrix right, Matrix result) {
    if (element_type_ == "float32") return solve_as<float>(n, columns, matrix, right, result);
    if (element_type_ == "float64") return solve_as<double>(n, columns, matrix, right, result);
    if (element_type_ == "complex64") return solve_as<std::complex<float>>(n, columns, matrix, right, result);
    if (element_type_ == "complex128") return solve_as<std::complex<double>>(n, columns, matrix, right, result);
    throw Error(text("cannot solve for elements of type ", element_type_));
  }

  /// By LU factors with partial pivoting, for some columns at a time, which LAPACK takes in column-major order.
  template <class T>
  void solve_as(int n, Index columns, Matrix matrix, Matrix right, Matrix result) {
    constexpr Index max_columns = 256;  // in the buffer, which stays in the cache
    const Index width = std::min(columns, max_columns), size = Index{n} * n;
    T* const factors = reinterpret_cast<T*>(workspace_.reserve((size + n * width) * static_cast<Index>(sizeof(T))));
    T* const buffer = factors + size;
    pivots_.resize(static_cast<std::size_t>(n));
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < n; ++i) factors[j * n + i] = element<T>(matrix, i, j);
    int info = 0;  // j: U(j, j), counted from 1, is 0
    blas::Routines<T>::getrf(&n, &n, factors, &n, pivots_.data(), &info);
    if (info != 0) throw Error(text("the ", n, " x ", n, " matrix is singular"));
    for (Index first = 0; first < columns; first += width) {
      const int count = static_cast<int>(std::min(width, columns - first));
      for (Index k = 0; k < count; ++k)
        for (Index i = 0; i < n; ++i)
          buffer[k * n + i] = right.data ? element<T>(right, i, first + k) : T(i == first + k);
      blas::Routines<T>::getrs("N", &n, &count, factors, &n, pivots_.data(), buffer, &n, &info);
      for (Index k = 0; k < count; ++k)
        for (Index i = 0; i < n; ++i) element<T>(result, i, first + k) = buffer[k * n + i];
    }
  }

  template <class T>
  static T& element(const Matrix& matrix, Index row, Index column) {
    return static_cast<T*>(const_cast<void*>(matrix.data))[row * matrix.row_stride + column * matrix.column_stride];
  }

  std::string statement_, element_type_;
  Workspace workspace_;
  std::vector<int> pivots_;
};

LinearSolver::LinearSolver(const char* statement, const char* element_type)
    : implementation_(std::make_unique<Implementation>(statement, element_type)) {}
LinearSolver::~LinearSolver() = default;
void LinearSolver::run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result) {
  implementation_->run(comm, extents[0], extents[1], extents[2], matrix, right, result);
}

}  // namespace dace_redist::program
