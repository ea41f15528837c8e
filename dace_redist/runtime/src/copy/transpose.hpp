// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Transposes small matrices of elements of 4 or 8 bytes in registers.

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define DACE_REDIST_TRANSPOSES_VECTORS
#endif
#endif

namespace dace_redist::detail {

/// Bytes of a vector register. Of operations on longer vectors, compilers make operations on their elements.
#if defined(__AVX512F__)
inline constexpr std::int64_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::int64_t vector_bytes = 32;
#else
inline constexpr std::int64_t vector_bytes = 16;
#endif

/// Rows and columns that are transposed in registers.
template <class Element>
inline constexpr std::int64_t transposed_side = std::min<std::int64_t>(8, vector_bytes / sizeof(Element));

#ifdef DACE_REDIST_TRANSPOSES_VECTORS
template <class Row>
[[gnu::always_inline]] inline void transpose_rows(Row (&a)[2]) {
  const Row even = __builtin_shufflevector(a[0], a[1], 0, 2), odd = __builtin_shufflevector(a[0], a[1], 1, 3);
  a[0] = even;
  a[1] = odd;
}

template <class Row>
[[gnu::always_inline]] inline void transpose_rows(Row (&a)[4]) {
  Row b[4];
  for (int i = 0; i < 4; i += 2) {  // pairs of elements of two rows
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 4, 2, 6);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 5, 3, 7);
  }
  for (int j = 0; j < 2; ++j) {  // whole columns
    a[j] = __builtin_shufflevector(b[j], b[j + 2], 0, 1, 4, 5);
    a[j + 2] = __builtin_shufflevector(b[j], b[j + 2], 2, 3, 6, 7);
  }
}

template <class Row>
[[gnu::always_inline]] inline void transpose_rows(Row (&a)[8]) {
  Row b[8];
  for (int i = 0; i < 8; i += 2) {  // pairs of elements of two rows
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  Row c[8];
  for (int i = 0; i < 8; i += 4)  // quarters of columns
    for (int j = 0; j < 2; ++j) {
      c[i + j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      c[i + j + 2] = __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int j = 0; j < 4; ++j) {  // whole columns
    a[j] = __builtin_shufflevector(c[j], c[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    a[j + 4] = __builtin_shufflevector(c[j], c[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#endif

/// Transposes transposed_side rows of as many elements. Strides in bytes, from row to row; elements of a row lie side
/// by side on both sides.
template <class Element>
void transpose_square(const char* source, std::int64_t source_stride, char* target, std::int64_t target_stride) {
  constexpr std::int64_t side = transposed_side<Element>;
#ifdef DACE_REDIST_TRANSPOSES_VECTORS
  // Vectors are loaded and stored as such: memcpy would move them in halves, by way of the stack.
  typedef Element Row __attribute__((vector_size(sizeof(Element) * side)));
  typedef Element Unaligned __attribute__((vector_size(sizeof(Element) * side), aligned(1), may_alias));
  Row rows[side];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < side; ++i) rows[i] = *reinterpret_cast<const Unaligned*>(source + i * source_stride);
  transpose_rows(rows);
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < side; ++i) *reinterpret_cast<Unaligned*>(target + i * target_stride) = rows[i];
#else
  for (std::int64_t i = 0; i < side; ++i)
    for (std::int64_t j = 0; j < side; ++j)
      std::memcpy(target + j * target_stride + i * static_cast<std::int64_t>(sizeof(Element)),
                  source + i * source_stride + j * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
#endif
}

/// Transposes a matrix of any size. Strides in bytes, from row to row.
/// \param rows, columns  of the source.
template <class Element>
void transpose_matrix(std::int64_t rows, std::int64_t columns, const char* source, std::int64_t source_stride,
                      char* target, std::int64_t target_stride) {
  constexpr std::int64_t nbytes = sizeof(Element), side = transposed_side<Element>;
  if (rows < side || columns < side) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        std::memcpy(target + j * target_stride + i * nbytes, source + i * source_stride + j * nbytes, nbytes);
    return;
  }
  // the last squares overlap those before them if the sides are not multiples
  for (std::int64_t i = 0; i < rows; i += side)
    for (std::int64_t j = 0; j < columns; j += side) {
      const std::int64_t row = std::min(i, rows - side), column = std::min(j, columns - side);
      transpose_square<Element>(source + row * source_stride + column * nbytes, source_stride,
                                target + column * target_stride + row * nbytes, target_stride);
    }
}

}  // namespace dace_redist::detail
