// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Linear systems whose matrix every rank has as a whole.

#include <utility>
#include <vector>

#include "contraction/matrix.hpp"
#include "contraction/resources.hpp"
#include "core/error.hpp"

namespace dace_redist {

/// Solves `G X = B` by LU factors with partial pivoting; keeps its workspace, n x n elements, from run to run.
class LinearSolver {
 public:
  /// \param n  Rows and columns of G, rows of B and X.
  /// \param columns  Of B and X.
  /// \param matrix  G.
  /// \param right  B, not the memory of X; null: the identity, so that X is the inverse of G.
  /// \param result  X, with adjacent elements in its rows or in its columns.
  /// \throws Error if G is singular, or an extent is more than LAPACK can take.
  template <class T>
  void run(Index n, Index columns, Matrix<const T> matrix, Matrix<const T> right, Matrix<T> result) {
    if (n == 0 || columns == 0) return;
    const MatrixLayout layout = matrix_layout(n, columns, result.row_stride, result.column_stride);
    if (n > max_blas_extent || columns > max_blas_extent || !layout.valid)
      throw Error(text("LAPACK cannot solve for ", n, " x ", columns, " elements with strides (", result.row_stride,
                       ", ", result.column_stride, ")"));
    const int order = static_cast<int>(n);
    T* const factors = static_cast<T*>(workspace_.reserve(static_cast<std::size_t>(n * n) * sizeof(T)));
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < n; ++i) factors[j * n + i] = matrix.data[i * matrix.row_stride + j * matrix.column_stride];
    pivots_.resize(static_cast<std::size_t>(n));
    int info = 0;  // j: U(j, j), counted from 1, is 0
    blas::Routines<T>::getrf(&order, &order, factors, &order, pivots_.data(), &info);
    if (info != 0) throw Error(text("the ", n, " x ", n, " matrix is singular"));
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < columns; ++k)
        at(result, i, k) = right.data ? right.data[i * right.row_stride + k * right.column_stride] : T(i == k);
    exchange_rows(n, columns, result);
    solve_triangles(order, static_cast<int>(columns), factors, layout, result.data);
  }

 private:
  template <class T>
  static T& at(Matrix<T> x, Index i, Index k) {
    return x.data[i * x.row_stride + k * x.column_stride];
  }

  /// Row i was exchanged with row pivots_[i] - 1, in this order.
  template <class T>
  void exchange_rows(Index n, Index columns, Matrix<T> x) const {
    for (Index i = 0; i < n; ++i) {
      const Index other = pivots_[static_cast<std::size_t>(i)] - 1;
      if (other == i) continue;
      for (Index k = 0; k < columns; ++k) std::swap(at(x, i, k), at(x, other, k));
    }
  }

  /// `x = U^-1 L^-1 x`. The factors lie column by column: in row-major order they are transposed.
  template <class T>
  static void solve_triangles(int n, int columns, const T* factors, const MatrixLayout& layout, T* x) {
    const bool by_rows = !layout.transposed;
    const auto order = by_rows ? CblasRowMajor : CblasColMajor;
    const auto op = by_rows ? CblasTrans : CblasNoTrans;
    const auto lower = by_rows ? CblasUpper : CblasLower, upper = by_rows ? CblasLower : CblasUpper;
    const T one(1);
    const auto solve = [&](auto part, auto diagonal) {
      blas::Routines<T>::trsm(order, CblasLeft, part, op, diagonal, n, columns, blas::Routines<T>::scalar(one), factors,
                              n, x, static_cast<int>(layout.leading));
    };
    solve(lower, CblasUnit);
    solve(upper, CblasNonUnit);
  }

  Workspace workspace_;
  std::vector<int> pivots_;
};

}  // namespace dace_redist
