// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Routines of BLAS and LAPACK for real and complex floating point.

#if defined(DACE_REDIST_MKL)
#include <mkl_cblas.h>
#include <mkl_service.h>
#else
#include <cblas.h>
#endif

#include <complex>

#include "contraction/resources.hpp"

// OpenBLAS from PyPI has a prefix before every name, which its macro BLAS_SYMBOL_PREFIX holds.
#define DACE_REDIST_JOIN_NAMES(prefix, name) prefix##name
#define DACE_REDIST_JOIN(prefix, name) DACE_REDIST_JOIN_NAMES(prefix, name)
#if defined(BLAS_SYMBOL_PREFIX)
#define DACE_REDIST_BLAS(name) DACE_REDIST_JOIN(BLAS_SYMBOL_PREFIX, name)
#else
#define DACE_REDIST_BLAS(name) name
#endif

namespace dace_redist::blas {

extern "C" {
void DACE_REDIST_BLAS(sgetrf_)(const int* m, const int* n, float* a, const int* lda, int* pivots, int* info);
void DACE_REDIST_BLAS(dgetrf_)(const int* m, const int* n, double* a, const int* lda, int* pivots, int* info);
void DACE_REDIST_BLAS(cgetrf_)(const int* m, const int* n, std::complex<float>* a, const int* lda, int* pivots,
                               int* info);
void DACE_REDIST_BLAS(zgetrf_)(const int* m, const int* n, std::complex<double>* a, const int* lda, int* pivots,
                               int* info);
}

/// The routines of an element type.
template <class T>
struct Routines;

template <>
struct Routines<float> {
  static constexpr auto gemm = DACE_REDIST_BLAS(cblas_sgemm);
  static constexpr auto gemv = DACE_REDIST_BLAS(cblas_sgemv);
  static constexpr auto trsm = DACE_REDIST_BLAS(cblas_strsm);
  static constexpr auto getrf = DACE_REDIST_BLAS(sgetrf_);
  static float scalar(const float& value) { return value; }
};
template <>
struct Routines<double> {
  static constexpr auto gemm = DACE_REDIST_BLAS(cblas_dgemm);
  static constexpr auto gemv = DACE_REDIST_BLAS(cblas_dgemv);
  static constexpr auto trsm = DACE_REDIST_BLAS(cblas_dtrsm);
  static constexpr auto getrf = DACE_REDIST_BLAS(dgetrf_);
  static double scalar(const double& value) { return value; }
};
template <>
struct Routines<std::complex<float>> {
  static constexpr auto gemm = DACE_REDIST_BLAS(cblas_cgemm);
  static constexpr auto gemv = DACE_REDIST_BLAS(cblas_cgemv);
  static constexpr auto trsm = DACE_REDIST_BLAS(cblas_ctrsm);
  static constexpr auto getrf = DACE_REDIST_BLAS(cgetrf_);
  static const std::complex<float>* scalar(const std::complex<float>& value) { return &value; }
};
template <>
struct Routines<std::complex<double>> {
  static constexpr auto gemm = DACE_REDIST_BLAS(cblas_zgemm);
  static constexpr auto gemv = DACE_REDIST_BLAS(cblas_zgemv);
  static constexpr auto trsm = DACE_REDIST_BLAS(cblas_ztrsm);
  static constexpr auto getrf = DACE_REDIST_BLAS(zgetrf_);
  static const std::complex<double>* scalar(const std::complex<double>& value) { return &value; }
};

/// Limits BLAS to one thread unless the environment chooses the number.
inline void limit_threads() {
  if (threads_are_chosen()) return;
#if defined(DACE_REDIST_MKL)
  MKL_Set_Num_Threads(1);
#elif defined(OPENBLAS_VERSION)
  DACE_REDIST_BLAS(openblas_set_num_threads)(1);
#endif
}

}  // namespace dace_redist::blas
