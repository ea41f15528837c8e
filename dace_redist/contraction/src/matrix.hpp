// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Routines of BLAS and LAPACK for real and complex floating point, and products of strided matrices, vectors among
/// them, which choose one.
///
/// multiply_by_panel() is the product of a large matrix, read once where it lies, and a panel of few columns that stays
/// in the cache.
///
/// BLAS copies the large matrix first, which costs as much as the arithmetic when the other one has few columns. The
/// tile of accumulators in registers is that of Goto and van de Geijn, ACM TOMS 34(3), 2008,
/// doi 10.1145/1356052.1356053.

#if defined(DACE_REDIST_MKL)
#include <mkl_cblas.h>
#include <mkl_service.h>
#else
#include <cblas.h>
#endif

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "executor.hpp"
#include "gemm_plan.hpp"

// OpenBLAS from PyPI has a prefix before every name, which its macro BLAS_SYMBOL_PREFIX holds.
#define DACE_REDIST_JOIN_NAMES(prefix, name) prefix##name
#define DACE_REDIST_JOIN(prefix, name) DACE_REDIST_JOIN_NAMES(prefix, name)
#if defined(BLAS_SYMBOL_PREFIX)
#define DACE_REDIST_BLAS(name) DACE_REDIST_JOIN(BLAS_SYMBOL_PREFIX, name)
#else
#define DACE_REDIST_BLAS(name) name
#endif

namespace dace_redist::contraction {

namespace blas {

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
    static constexpr auto syrk = DACE_REDIST_BLAS(cblas_##letter##syrk);                                          \
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

}  // namespace blas

/// A matrix of strided elements; strides in elements, those of a single row or column do not matter.
template <class T>
struct Matrix {
  T* data;
  Index row_stride, column_stride;

  Matrix transposed() const { return {data, column_stride, row_stride}; }

  bool operator==(const Matrix& other) const {
    return data == other.data && row_stride == other.row_stride && column_stride == other.column_stride;
  }
};

namespace detail {

inline CBLAS_TRANSPOSE transpose_of(const MatrixLayout& layout) {
  return layout.transposed ? CblasTrans : CblasNoTrans;
}

/// Rows and sums from which on half a product and a copy of it take less time than the product (OpenBLAS, AMD Zen 3).
inline constexpr Index min_mirrored_rows = 32, min_mirrored_sums = 64;

/// Copies the elements above the diagonal of an n x n matrix to their places below it.
template <class T>
void mirror(Index n, T* c, Index leading) {
  constexpr Index block = 64;
  for (Index first = 0; first < n; first += block) {
    const Index last = std::min(n, first + block);
    for (Index row = first + 1; row < last; ++row)
      for (Index column = first; column < row; ++column) c[row * leading + column] = c[column * leading + row];
    if (last == n) return;
    library::Box box;
    box.ndim = 2;
    box.counts = {n - last, last - first};
    box.source_strides = {1, leading};
    box.target_strides = {leading, 1};
    library::copy(box, sizeof(T), c + first * leading + last, c + last * leading + first);
  }
}

template <class T>
void blas_product(Index m, Index n, Index k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  const MatrixLayout c_layout = matrix_layout(m, n, c.row_stride, c.column_stride);
  if (c_layout.transposed) return blas_product<T>(n, m, k, alpha, b.transposed(), a.transposed(), beta, c.transposed());
  const MatrixLayout a_layout = matrix_layout(m, k, a.row_stride, a.column_stride);
  if (m == n && a == b.transposed() && beta == T(0) && m >= min_mirrored_rows && k >= min_mirrored_sums) {
    blas::Routines<T>::syrk(CblasRowMajor, CblasUpper, transpose_of(a_layout), static_cast<int>(m), static_cast<int>(k),
                            blas::scalar(alpha), a.data, static_cast<int>(a_layout.leading), blas::scalar(beta), c.data,
                            static_cast<int>(c_layout.leading));
    return mirror(m, c.data, c_layout.leading);
  }
  const MatrixLayout b_layout = matrix_layout(k, n, b.row_stride, b.column_stride);
  blas::Routines<T>::gemm(CblasRowMajor, transpose_of(a_layout), transpose_of(b_layout), static_cast<int>(m),
                          static_cast<int>(n), static_cast<int>(k), blas::scalar(alpha), a.data,
                          static_cast<int>(a_layout.leading), b.data, static_cast<int>(b_layout.leading),
                          blas::scalar(beta), c.data, static_cast<int>(c_layout.leading));
}

/// `c = alpha * a b + beta * c` for vectors b and c.
template <class T>
void blas_matrix_vector(Index m, Index k, T alpha, Matrix<const T> a, const T* b, Index b_stride, T beta, T* c,
                        Index c_stride) {
  scale_vector(m, beta, c, c_stride);
  const MatrixLayout layout = matrix_layout(m, k, a.row_stride, a.column_stride);
  const auto [rows, columns] = layout.transposed ? std::pair(k, m) : std::pair(m, k);
  const T one(1);
  blas::Routines<T>::gemv(CblasRowMajor, transpose_of(layout), static_cast<int>(rows), static_cast<int>(columns),
                          blas::scalar(alpha), a.data, static_cast<int>(layout.leading), b, static_cast<int>(b_stride),
                          blas::scalar(one), c, static_cast<int>(c_stride));
}

inline constexpr Index first_level_bytes = Index{1} << 14;  ///< of a matrix whose rows are contiguous, taken at a time
inline constexpr Index tile_rows = vector_bytes == 64 ? 8 : 4;  ///< their accumulators and a row fit the registers
inline constexpr Index tile_vectors = 3;

template <class T>
inline constexpr Index lanes = vector_bytes / static_cast<Index>(sizeof(T));

/// \param offset  Elements; may lead out of the array.
template <class T>
void prefetch([[maybe_unused]] const T* data, [[maybe_unused]] Index offset) {
#if defined(__GNUC__)
  const auto address = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(offset) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
#endif
}

/// `target += a panel` for `Rows` rows and `Vectors` vectors of columns. `Along`: k is contiguous, else the rows are.
template <class T, Index Rows, Index Vectors, bool Along>
void panel_tile(Index depth, Matrix<const T> a, const T* panel, Index columns, T* target) {
  constexpr Index block = 64 / static_cast<Index>(sizeof(T));
  typedef T Vector __attribute__((vector_size(vector_bytes)));
  typedef T Unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
  Vector sums[Rows][Vectors] = {};
  const Index row_stride = Along ? a.row_stride : 1, k_stride = Along ? 1 : a.column_stride;
  for (Index start = 0; start < depth; start += block) {
    if (Along)
      for (Index row = 0; row < Rows; ++row) prefetch(a.data, (row + Rows) * row_stride + start);  // the next rows
    for (Index k = start; k < std::min(depth, start + block); ++k) {
      if (!Along) prefetch(a.data, (k + depth) * k_stride);
      Vector factors[Vectors];
#pragma GCC unroll 3
      for (Index v = 0; v < Vectors; ++v)
        factors[v] = *reinterpret_cast<const Unaligned*>(panel + k * columns + v * lanes<T>);
      const T* element = a.data + k * k_stride;
#pragma GCC unroll 8
      for (Index row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
        for (Index v = 0; v < Vectors; ++v) sums[row][v] += factors[v] * element[row * row_stride];
      }
    }
  }
#pragma GCC unroll 8
  for (Index row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (Index v = 0; v < Vectors; ++v)
      *reinterpret_cast<Unaligned*>(target + row * columns + v * lanes<T>) += sums[row][v];
  }
}

/// `target += a panel`, in tiles of `Rows` rows; the last rows in smaller tiles.
template <class T, Index Rows, bool Along>
void add_panel_product(Index rows, Index depth, Matrix<const T> a, const T* panel, Index columns, T* target) {
  const Index vectors = columns / lanes<T>, groups = ceil_div(vectors, tile_vectors);
  for (; rows >= Rows; rows -= Rows, a.data += Rows * (Along ? a.row_stride : 1), target += Rows * columns)
    for (Index group = 0; group < groups; ++group) {
      const Index begin = vectors * group / groups, size = vectors * (group + 1) / groups - begin;
      const auto tile = size == 1   ? panel_tile<T, Rows, 1, Along>
                        : size == 2 ? panel_tile<T, Rows, 2, Along>
                                    : panel_tile<T, Rows, 3, Along>;
      tile(depth, a, panel + begin * lanes<T>, columns, target + begin * lanes<T>);
    }
  if constexpr (Rows > 1) add_panel_product<T, Rows / 2, Along>(rows, depth, a, panel, columns, target);
}

}  // namespace detail

/// `c = alpha * a b + beta * c`; beta 0 does not read c. A matrix times its transpose takes half of the operations.
///
/// \param m, n, k  Rows of a and c, columns of b and c, columns of a and rows of b; 1 to max_blas_extent.
/// \param a, b, c  Matrices whose matrix_layout() is valid.
template <class T>
void multiply_matrices(Index m, Index n, Index k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  if (n == 1 && m > 1 && k > 1)
    detail::blas_matrix_vector(m, k, alpha, a, b.data, b.row_stride, beta, c.data, c.row_stride);
  else if (m == 1 && n > 1 && k > 1)
    detail::blas_matrix_vector(n, k, alpha, b.transposed(), a.data, a.column_stride, beta, c.data, c.column_stride);
  else
    detail::blas_product(m, n, k, alpha, a, b, beta, c);
}

/// `target = a panel`.
///
/// \param rows, depth  Rows of a and of the target, columns of a and rows of the panel.
/// \param a  A matrix with contiguous rows or columns.
/// \param panel, target  [depth or rows, columns], contiguous.
/// \param columns  From panel_columns().
template <class T>
void multiply_by_panel(Index rows, Index depth, Matrix<const T> a, const T* panel, Index columns, T* target) {
  if constexpr (std::is_arithmetic_v<T>) {
    if (executor_of<T>.has_panel_kernel(columns)) {
      std::fill(target, target + rows * columns, T(0));
      if (a.column_stride == 1 || depth == 1)
        return detail::add_panel_product<T, detail::tile_rows, true>(rows, depth, a, panel, columns, target);
      const Index block = std::max<Index>(16, detail::first_level_bytes / (rows * static_cast<Index>(sizeof(T))));
      for (Index k = 0; k < depth; k += block)  // of this many columns of a every line is used up
        detail::add_panel_product<T, detail::tile_rows, false>(rows, std::min(block, depth - k),
                                                               {a.data + k * a.column_stride, 1, a.column_stride},
                                                               panel + k * columns, columns, target);
      return;
    }
  }
  if constexpr (!std::is_integral_v<T>)
    multiply_matrices<T>(rows, columns, depth, T(1), a, {panel, columns, 1}, T(0), {target, columns, 1});
}

}  // namespace dace_redist::contraction
