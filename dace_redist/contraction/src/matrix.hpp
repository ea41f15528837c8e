// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Products of strided matrices, vectors among them: chooses the routine of BLAS.

#include <utility>

#include "blas.hpp"
#include "gemm_plan.hpp"
#include "vector_loops.hpp"

namespace dace_redist {

/// A matrix of strided elements; strides in elements, those of a single row or column do not matter.
template <class T>
struct Matrix {
  T* data;
  Index row_stride, column_stride;

  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

namespace detail {

inline CBLAS_TRANSPOSE transpose_of(const MatrixLayout& layout) {
  return layout.transposed ? CblasTrans : CblasNoTrans;
}

template <class T>
void blas_product(Index m, Index n, Index k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  const MatrixLayout c_layout = matrix_layout(m, n, c.row_stride, c.column_stride);
  if (c_layout.transposed) return blas_product<T>(n, m, k, alpha, b.transposed(), a.transposed(), beta, c.transposed());
  const MatrixLayout a_layout = matrix_layout(m, k, a.row_stride, a.column_stride);
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

}  // namespace detail

/// `c = alpha * a b + beta * c`; beta 0 does not read c.
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

}  // namespace dace_redist
