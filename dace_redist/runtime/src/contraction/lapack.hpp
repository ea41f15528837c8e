// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// LU factors by the LAPACK that comes with BLAS, and triangular systems by CBLAS.

#include <complex>

#include "contraction/blas.hpp"
#include "contraction/blas_name.hpp"

namespace dace_redist::blas {

extern "C" {
void DACE_REDIST_BLAS(sgetrf_)(const int* m, const int* n, float* a, const int* lda, int* pivots, int* info);
void DACE_REDIST_BLAS(dgetrf_)(const int* m, const int* n, double* a, const int* lda, int* pivots, int* info);
void DACE_REDIST_BLAS(cgetrf_)(const int* m, const int* n, std::complex<float>* a, const int* lda, int* pivots,
                               int* info);
void DACE_REDIST_BLAS(zgetrf_)(const int* m, const int* n, std::complex<double>* a, const int* lda, int* pivots,
                               int* info);
}

/// Factors `a = P L U` of a matrix of n columns one after another, in its place.
///
/// \param pivots  n numbers: row i was exchanged with row pivots[i] - 1, in this order.
/// \return 0; or j if U(j, j), counted from 1, is exactly 0.
inline int factorise(int n, float* a, int* pivots) {
  int info = 0;
  DACE_REDIST_BLAS(sgetrf_)(&n, &n, a, &n, pivots, &info);
  return info;
}
inline int factorise(int n, double* a, int* pivots) {
  int info = 0;
  DACE_REDIST_BLAS(dgetrf_)(&n, &n, a, &n, pivots, &info);
  return info;
}
inline int factorise(int n, std::complex<float>* a, int* pivots) {
  int info = 0;
  DACE_REDIST_BLAS(cgetrf_)(&n, &n, a, &n, pivots, &info);
  return info;
}
inline int factorise(int n, std::complex<double>* a, int* pivots) {
  int info = 0;
  DACE_REDIST_BLAS(zgetrf_)(&n, &n, a, &n, pivots, &info);
  return info;
}

using Order = decltype(CblasRowMajor);
using Triangle = decltype(CblasUpper);
using Diagonal = decltype(CblasUnit);

/// `x = op(a)^-1 x` for a triangular matrix a of n rows, and x of n rows and some columns.
inline void solve_triangle(Order order, Triangle part, Transpose op, Diagonal diagonal, int n, int columns,
                           const float* a, float* x, int ldx) {
  DACE_REDIST_BLAS(cblas_strsm)(order, CblasLeft, part, op, diagonal, n, columns, 1, a, n, x, ldx);
}
inline void solve_triangle(Order order, Triangle part, Transpose op, Diagonal diagonal, int n, int columns,
                           const double* a, double* x, int ldx) {
  DACE_REDIST_BLAS(cblas_dtrsm)(order, CblasLeft, part, op, diagonal, n, columns, 1, a, n, x, ldx);
}
inline void solve_triangle(Order order, Triangle part, Transpose op, Diagonal diagonal, int n, int columns,
                           const std::complex<float>* a, std::complex<float>* x, int ldx) {
  const std::complex<float> one(1);
  DACE_REDIST_BLAS(cblas_ctrsm)(order, CblasLeft, part, op, diagonal, n, columns, &one, a, n, x, ldx);
}
inline void solve_triangle(Order order, Triangle part, Transpose op, Diagonal diagonal, int n, int columns,
                           const std::complex<double>* a, std::complex<double>* x, int ldx) {
  const std::complex<double> one(1);
  DACE_REDIST_BLAS(cblas_ztrsm)(order, CblasLeft, part, op, diagonal, n, columns, &one, a, n, x, ldx);
}

}  // namespace dace_redist::blas
