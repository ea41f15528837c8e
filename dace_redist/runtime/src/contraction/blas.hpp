// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Matrix products: CBLAS for real and complex floating point, plain loops for every other type.

#if defined(DACE_REDIST_MKL)
#include <mkl_cblas.h>
#include <mkl_service.h>
#else
#include <cblas.h>
#endif

#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "contraction/blas_name.hpp"
#include "contraction/threads.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

namespace blas {

/// Element types that BLAS knows.
template <class T>
inline constexpr bool knows = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                              std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

inline constexpr Index longest = std::numeric_limits<int>::max();  ///< sizes and strides of CBLAS are int

/// Has BLAS run on one thread, as every rank is one of several on its node, unless the environment says how many.
inline void limit_threads() {
  if (threads_are_chosen()) return;
#if defined(DACE_REDIST_MKL)
  MKL_Set_Num_Threads(1);
#elif defined(OPENBLAS_VERSION)
  DACE_REDIST_BLAS(openblas_set_num_threads)(1);
#endif
}

using Transpose = CBLAS_TRANSPOSE;

inline void gemm(Transpose ta, Transpose tb, int m, int n, int k, float alpha, const float* a, int lda, const float* b,
                 int ldb, float beta, float* c, int ldc) {
  DACE_REDIST_BLAS(cblas_sgemm)(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void gemm(Transpose ta, Transpose tb, int m, int n, int k, double alpha, const double* a, int lda,
                 const double* b, int ldb, double beta, double* c, int ldc) {
  DACE_REDIST_BLAS(cblas_dgemm)(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void gemm(Transpose ta, Transpose tb, int m, int n, int k, std::complex<float> alpha,
                 const std::complex<float>* a, int lda, const std::complex<float>* b, int ldb, std::complex<float> beta,
                 std::complex<float>* c, int ldc) {
  DACE_REDIST_BLAS(cblas_cgemm)(CblasRowMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void gemm(Transpose ta, Transpose tb, int m, int n, int k, std::complex<double> alpha,
                 const std::complex<double>* a, int lda, const std::complex<double>* b, int ldb,
                 std::complex<double> beta, std::complex<double>* c, int ldc) {
  DACE_REDIST_BLAS(cblas_zgemm)(CblasRowMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

/// `y += alpha * op(a) x`.
inline void gemv(Transpose ta, int rows, int columns, float alpha, const float* a, int lda, const float* x, int incx,
                 float* y, int incy) {
  DACE_REDIST_BLAS(cblas_sgemv)(CblasRowMajor, ta, rows, columns, alpha, a, lda, x, incx, 1, y, incy);
}
inline void gemv(Transpose ta, int rows, int columns, double alpha, const double* a, int lda, const double* x, int incx,
                 double* y, int incy) {
  DACE_REDIST_BLAS(cblas_dgemv)(CblasRowMajor, ta, rows, columns, alpha, a, lda, x, incx, 1, y, incy);
}
inline void gemv(Transpose ta, int rows, int columns, std::complex<float> alpha, const std::complex<float>* a, int lda,
                 const std::complex<float>* x, int incx, std::complex<float>* y, int incy) {
  const std::complex<float> one(1);
  DACE_REDIST_BLAS(cblas_cgemv)(CblasRowMajor, ta, rows, columns, &alpha, a, lda, x, incx, &one, y, incy);
}
inline void gemv(Transpose ta, int rows, int columns, std::complex<double> alpha, const std::complex<double>* a,
                 int lda, const std::complex<double>* x, int incx, std::complex<double>* y, int incy) {
  const std::complex<double> one(1);
  DACE_REDIST_BLAS(cblas_zgemv)(CblasRowMajor, ta, rows, columns, &alpha, a, lda, x, incx, &one, y, incy);
}

inline float dot(int n, const float* x, int incx, const float* y, int incy) {
  return DACE_REDIST_BLAS(cblas_sdot)(n, x, incx, y, incy);
}
inline double dot(int n, const double* x, int incx, const double* y, int incy) {
  return DACE_REDIST_BLAS(cblas_ddot)(n, x, incx, y, incy);
}
inline std::complex<float> dot(int n, const std::complex<float>* x, int incx, const std::complex<float>* y, int incy) {
  std::complex<float> sum;
  DACE_REDIST_BLAS(cblas_cdotu_sub)(n, x, incx, y, incy, &sum);
  return sum;
}
inline std::complex<double> dot(int n, const std::complex<double>* x, int incx, const std::complex<double>* y,
                                int incy) {
  std::complex<double> sum;
  DACE_REDIST_BLAS(cblas_zdotu_sub)(n, x, incx, y, incy, &sum);
  return sum;
}

}  // namespace blas
}  // namespace dace_redist
