// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The innermost loops over vectors of elements, and over rows of a Khatri-Rao product, written so that compilers
/// vectorise them.

#include <complex>
#include <cstddef>
#include <type_traits>

#include "layout/intervals.hpp"

namespace dace_redist::detail {

template <class T>
T multiply(T a, T b) {
  return static_cast<T>(a * b);
}

/// Without the search for infinities that C++ prescribes, which would cost a call.
template <class R>
std::complex<R> multiply(std::complex<R> a, std::complex<R> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// A factor of a sum times a number. A factor of 1 keeps infinities, of which a product of complex numbers makes NaN.
template <class T>
T scaled(T factor, T number) {
  if constexpr (!std::is_arithmetic_v<T>)
    if (factor == T(1)) return number;
  return multiply(factor, number);
}

/// `y = beta * y`; 0 does not read y.
template <class T>
void scale_vector(Index n, T beta, T* y, Index stride) {
  if (beta == T(1)) return;
  if (beta == T(0))
    for (Index i = 0; i < n; ++i) y[i * stride] = T(0);
  else
    for (Index i = 0; i < n; ++i) y[i * stride] = multiply(beta, y[i * stride]);
}

/// `y += alpha * x`, or with `Assign` `y = alpha * x`.
template <bool Assign, class T>
void multiply_add(Index n, T alpha, const T* __restrict x, Index x_stride, T* __restrict y, Index y_stride) {
  const auto term = [alpha](T x_i, T y_i) {
    return Assign ? scaled(alpha, x_i) : static_cast<T>(y_i + scaled(alpha, x_i));
  };
  if (x_stride == 1 && y_stride == 1)
    for (Index i = 0; i < n; ++i) y[i] = term(x[i], Assign ? T(0) : y[i]);
  else
    for (Index i = 0; i < n; ++i) y[i * y_stride] = term(x[i * x_stride], Assign ? T(0) : y[i * y_stride]);
}

/// `z += alpha * x * y` element by element, or with `Assign` `z = alpha * x * y`.
template <bool Assign, class T>
void multiply_add(Index n, T alpha, const T* __restrict x, Index x_stride, const T* __restrict y, Index y_stride,
                  T* __restrict z, Index z_stride) {
  const auto term = [alpha](T x_i, T y_i, T z_i) {
    const T product = scaled(alpha, multiply(x_i, y_i));
    return Assign ? product : static_cast<T>(z_i + product);
  };
  if (x_stride == 1 && y_stride == 1 && z_stride == 1)
    for (Index i = 0; i < n; ++i) z[i] = term(x[i], y[i], Assign ? T(0) : z[i]);
  else
    for (Index i = 0; i < n; ++i)
      z[i * z_stride] = term(x[i * x_stride], y[i * y_stride], Assign ? T(0) : z[i * z_stride]);
}

/// Sum of `term(0)` to `term(n - 1)`, in several partial sums: the compiler may not reorder one.
template <class T, class Term>
T partial_sums(Index n, const Term& term) {
  constexpr Index lanes = 16;
  T sums[lanes] = {};
  Index i = 0;
  for (; i + lanes <= n; i += lanes)
    for (Index lane = 0; lane < lanes; ++lane) sums[lane] = static_cast<T>(sums[lane] + term(i + lane));
  T sum(0);
  for (; i < n; ++i) sum = static_cast<T>(sum + term(i));
  for (const T& partial : sums) sum = static_cast<T>(sum + partial);
  return sum;
}

template <class T>
T sum_vector(Index n, const T* x, Index stride) {
  if (stride == 1) return partial_sums<T>(n, [x](Index i) { return x[i]; });
  return partial_sums<T>(n, [x, stride](Index i) { return x[i * stride]; });
}

template <class T>
T dot_vectors(Index n, const T* x, Index x_stride, const T* y, Index y_stride) {
  if (x_stride == 1 && y_stride == 1) return partial_sums<T>(n, [x, y](Index i) { return multiply(x[i], y[i]); });
  return partial_sums<T>(n, [=](Index i) { return multiply(x[i * x_stride], y[i * y_stride]); });
}

/// Calls `work(first, count)` for the cache lines of a row; the count of whole ones is known to the compiler, which
/// then keeps sums in registers.
template <class T, class Work>
void for_chunks(Index size, const Work& work) {
  constexpr Index chunk = 64 / static_cast<Index>(sizeof(T));
  Index first = 0;
  for (; first + chunk <= size; first += chunk) work(first, std::integral_constant<Index, chunk>{});
  if (first < size) work(first, size - first);
}

/// `y[row] += x[row] * weights` for rows of `size` elements.
template <class T>
void add_weighted_rows(Index rows, Index size, const T* x, Index x_stride, const T* weights, T* y, Index y_stride) {
  for_chunks<T>(size, [&](Index first, auto count) {
    for (Index row = 0; row < rows; ++row) {
      const T* __restrict x_row = x + row * x_stride + first;
      T* __restrict y_row = y + row * y_stride + first;
      for (Index i = 0; i < count; ++i) y_row[i] = static_cast<T>(y_row[i] + multiply(x_row[i], weights[first + i]));
    }
  });
}

/// `z += weights * sum(x[row] * y[row])` over rows of `size` elements.
template <class T>
void add_weighted_sum(Index rows, Index size, const T* x, Index x_stride, const T* y, Index y_stride, const T* weights,
                      T* z) {
  for_chunks<T>(size, [&](Index first, auto count) {
    T sums[64 / sizeof(T)] = {};
    for (Index row = 0; row < rows; ++row) {
      const T *x_row = x + row * x_stride + first, *y_row = y + row * y_stride + first;
      for (Index i = 0; i < count; ++i) sums[i] = static_cast<T>(sums[i] + multiply(x_row[i], y_row[i]));
    }
    multiply_add<false>(count, T(1), sums, 1, weights + first, 1, z + first, 1);
  });
}

}  // namespace dace_redist::detail
