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
#include <type_traits>

// OpenBLAS from PyPI has a prefix before every name, which its macro BLAS_SYMBOL_PREFIX holds.
#define DACE_REDIST_JOIN_NAMES(prefix, name) prefix##name
#define DACE_REDIST_JOIN(prefix, name) DACE_REDIST_JOIN_NAMES(prefix, name)
#if defined(BLAS_SYMBOL_PREFIX)
#define DACE_REDIST_BLAS(name) DACE_REDIST_JOIN(BLAS_SYMBOL_PREFIX, name)
#else
#define DACE_REDIST_BLAS(name) name
#endif

namespace dace_redist::blas {

/// The routines of an element type.
template <class T>
struct Routines;

#define DACE_REDIST_ROUTINES(T, letter)                                                                           \
  extern "C" void DACE_REDIST_BLAS(letter##getrf_)(const int* m, const int* n, T* a, const int* lda, int* pivots, \
                                                   int* info);                                                    \
  extern "C" void DACE_REDIST_BLAS(letter##getrs_)(const char* transposed, const int* n, const int* columns,      \
                                                   const T* factors, const int* lda, const int* pivots, T* b,     \
                                                   const int* ldb, int* info);                                    \
  template <>                                                                                                     \
  struct Routines<T> {                                                                                            \
    static constexpr auto gemm = DACE_REDIST_BLAS(cblas_##letter##gemm);                                          \
    static constexpr auto gemv = DACE_REDIST_BLAS(cblas_##letter##gemv);                                          \
    static constexpr auto getrf = DACE_REDIST_BLAS(letter##getrf_);                                               \
    static constexpr auto getrs = DACE_REDIST_BLAS(letter##getrs_);                                               \
  };
DACE_REDIST_ROUTINES(float, s)
DACE_REDIST_ROUTINES(double, d)
DACE_REDIST_ROUTINES(std::complex<float>, c)
DACE_REDIST_ROUTINES(std::complex<double>, z)
#undef DACE_REDIST_ROUTINES

/// A number as CBLAS takes it: a complex one by address.
template <class T>
auto scalar(const T& value) {
  if constexpr (std::is_floating_point_v<T>)
    return value;
  else
    return &value;
}

}  // namespace dace_redist::blas
