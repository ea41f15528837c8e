// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Products of strided matrices, vectors among them: chooses the routine of BLAS.

#include <cstddef>

#include "contraction/blas.hpp"
#include "contraction/loops.hpp"

namespace dace_redist {

/// A matrix of strided elements; strides in elements, those of a single row or column do not matter.
template <class T>
struct Matrix {
  T* data;
  Index row_stride, column_stride;

  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

namespace detail {

/// How BLAS is told about a matrix: as one in row-major order with this distance between rows, perhaps transposed.
struct MatrixLayout {
  bool valid = false;
  bool transposed = false;
  int leading = 1;
};

inline MatrixLayout matrix_layout(Index rows, Index columns, Index row_stride, Index column_stride) {
  const auto of = [](bool transposed, Index length, Index stride, bool single) -> MatrixLayout {
    const Index leading = single ? std::max<Index>(1, length) : stride;
    return {leading >= length && leading > 0 && leading <= blas::longest, transposed, static_cast<int>(leading)};
  };
  if (columns == 1 || column_stride == 1) {
    const MatrixLayout layout = of(false, columns, row_stride, rows == 1);
    if (layout.valid) return layout;
  }
  if (rows == 1 || row_stride == 1) return of(true, rows, column_stride, columns == 1);
  return {};
}

template <class T>
void blas_product(Index m, Index n, Index k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  const MatrixLayout c_layout = matrix_layout(m, n, c.row_stride, c.column_stride);
  if (c_layout.transposed) return blas_product<T>(n, m, k, alpha, b.transposed(), a.transposed(), beta, c.transposed());
  const MatrixLayout a_layout = matrix_layout(m, k, a.row_stride, a.column_stride);
  const MatrixLayout b_layout = matrix_layout(k, n, b.row_stride, b.column_stride);
  const auto sign = [](const MatrixLayout& layout) { return layout.transposed ? CblasTrans : CblasNoTrans; };
  blas::gemm(sign(a_layout), sign(b_layout), static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha,
             a.data, a_layout.leading, b.data, b_layout.leading, beta, c.data, c_layout.leading);
}

/// `c = alpha * a b + beta * c` for vectors b and c.
template <class T>
void blas_matrix_vector(Index m, Index k, T alpha, Matrix<const T> a, const T* b, Index b_stride, T beta, T* c,
                        Index c_stride) {
  scale_vector(m, beta, c, c_stride);
  const MatrixLayout layout = matrix_layout(m, k, a.row_stride, a.column_stride);
  const bool transposed = layout.transposed;
  blas::gemv(transposed ? CblasTrans : CblasNoTrans, static_cast<int>(transposed ? k : m),
             static_cast<int>(transposed ? m : k), alpha, a.data, layout.leading, b, static_cast<int>(b_stride), c,
             static_cast<int>(c_stride));
}

template <class T>
void plain_product(Index m, Index n, Index k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  for (Index i = 0; i < m; ++i) {
    T* row = c.data + i * c.row_stride;
    scale_vector(n, beta, row, c.column_stride);
    for (Index p = 0; p < k; ++p)
      multiply_add<false>(n, multiply(alpha, a.data[i * a.row_stride + p * a.column_stride]), b.data + p * b.row_stride,
                          b.column_stride, row, c.column_stride);
  }
}

}  // namespace detail

/// Whether multiply_matrices() takes a matrix as it lies.
inline bool is_matrix(Index rows, Index columns, Index row_stride, Index column_stride) {
  return detail::matrix_layout(rows, columns, row_stride, column_stride).valid;
}

/// `c = alpha * a b + beta * c`; beta 0 does not read c.
///
/// \param m, n, k  Rows of a and c, columns of b and c, columns of a and rows of b; 1 to 2^31 - 1.
/// \param a, b, c  Matrices for which is_matrix() holds.
template <class T>
void multiply_matrices(Index m, Index n, Index k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  if constexpr (!blas::knows<T>) {
    detail::plain_product(m, n, k, alpha, a, b, beta, c);
  } else if (m == 1 && n == 1 && k > 1) {
    const T sum = blas::dot(static_cast<int>(k), a.data, static_cast<int>(a.column_stride), b.data,
                            static_cast<int>(b.row_stride));
    *c.data = detail::multiply(alpha, sum) + (beta == T(0) ? T(0) : detail::multiply(beta, *c.data));
  } else if (n == 1 && m > 1 && k > 1) {
    detail::blas_matrix_vector(m, k, alpha, a, b.data, b.row_stride, beta, c.data, c.row_stride);
  } else if (m == 1 && n > 1 && k > 1) {
    detail::blas_matrix_vector(n, k, alpha, b.transposed(), a.data, a.column_stride, beta, c.data, c.column_stride);
  } else {
    detail::blas_product(m, n, k, alpha, a, b, beta, c);
  }
}

}  // namespace dace_redist
