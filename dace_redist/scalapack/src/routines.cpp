// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// ScaLAPACK's routines that redistribute and transpose, by their C and Fortran names. What this library does not carry
/// out goes to the routine of the ScaLAPACK in the process: to the C one, as the Fortran one calls back here.

#include <atomic>
#include <complex>

#include "call.hpp"
#include "functions.hpp"

using dace_redist::scalapack::Call;
using dace_redist::scalapack::carry_out;
using dace_redist::scalapack::Function;
using dace_redist::scalapack::Routine;
using dace_redist::scalapack::Submatrix;

namespace {

/// A submatrix by Fortran's indices.
Submatrix submatrix(void* data, int row, int column, const int* descriptor) {
  return {static_cast<char*>(data), row - 1, column - 1, descriptor};
}

}  // namespace

extern "C" {

#define DR_GEMR2D(type, bytes)                                                                                         \
  static const Function<void(int, int, void*, int, int, int*, void*, int, int, int*, int)> real_p##type##gemr2d{       \
      "Cp" #type "gemr2d"};                                                                                            \
  DR_API void Cp##type##gemr2d(int m, int n, void* a, int ia, int ja, int* desca, void* b, int ib, int jb, int* descb, \
                               int context) {                                                                          \
    static constexpr Routine routine{"p" #type "gemr2d", bytes};                                                       \
    carry_out({routine, m, n, submatrix(a, ia, ja, desca), submatrix(b, ib, jb, descb), context},                      \
              [&] { real_p##type##gemr2d.get()(m, n, a, ia, ja, desca, b, ib, jb, descb, context); });                 \
  }                                                                                                                    \
  DR_API void p##type##gemr2d_(int* m, int* n, void* a, int* ia, int* ja, int* desca, void* b, int* ib, int* jb,       \
                               int* descb, int* context) {                                                             \
    Cp##type##gemr2d(*m, *n, a, *ia, *ja, desca, b, *ib, *jb, descb, *context);                                        \
  }

DR_GEMR2D(i, 4)
DR_GEMR2D(s, 4)
DR_GEMR2D(d, 8)
DR_GEMR2D(c, 8)
DR_GEMR2D(z, 16)

#define DR_TRAN(name, Number, element, conjugates)                                                                 \
  static const Function<void(int*, int*, Number*, void*, int*, int*, int*, Number*, void*, int*, int*, int*)>      \
      real_##name{#name "_"};                                                                                      \
  DR_API void name##_(int* m, int* n, Number* alpha, void* a, int* ia, int* ja, int* desca, Number* beta, void* c, \
                      int* ic, int* jc, int* descc) {                                                              \
    static constexpr Routine routine{#name, sizeof(Number), element, true, conjugates};                            \
    const Call call{routine,  *m,     *n,   submatrix(a, *ia, *ja, desca), submatrix(c, *ic, *jc, descc),          \
                    desca[1], *alpha, *beta};                                                                      \
    carry_out(call, [&] { real_##name.get()(m, n, alpha, a, ia, ja, desca, beta, c, ic, jc, descc); });            \
  }

DR_TRAN(pstran, float, DR_FLOAT32, false)
DR_TRAN(pdtran, double, DR_FLOAT64, false)
DR_TRAN(pctranu, std::complex<float>, DR_COMPLEX64, false)
DR_TRAN(pztranu, std::complex<double>, DR_COMPLEX128, false)
DR_TRAN(pctranc, std::complex<float>, DR_COMPLEX64, true)
DR_TRAN(pztranc, std::complex<double>, DR_COMPLEX128, true)

}  // extern "C"
