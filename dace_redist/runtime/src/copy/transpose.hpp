// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Transposes small matrices of elements of 4 or 8 bytes in registers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define DACE_REDIST_TRANSPOSES_VECTORS
#endif
#endif

namespace dace_redist::detail {

inline constexpr std::int64_t transposed_side = 8;  ///< rows and columns that are transposed in registers

/// Transposes transposed_side rows of as many elements. Strides in bytes, from row to row; elements of a row lie side
/// by side on both sides.
template <class Element>
void transpose_square(const char* source, std::int64_t source_stride, char* target, std::int64_t target_stride) {
#ifdef DACE_REDIST_TRANSPOSES_VECTORS
  typedef Element Row __attribute__((vector_size(sizeof(Element) * transposed_side)));
  Row a[8], b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], source + i * source_stride, sizeof(Row));
  for (int i = 0; i < 8; i += 2) {  // pairs of elements of two rows
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)  // quarters of columns
    for (int j = 0; j < 2; ++j) {
      a[i + j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + j + 2] = __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int j = 0; j < 4; ++j) {  // whole columns
    b[j] = __builtin_shufflevector(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[j + 4] = __builtin_shufflevector(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(target + i * target_stride, &b[i], sizeof(Row));
#else
  for (std::int64_t i = 0; i < transposed_side; ++i)
    for (std::int64_t j = 0; j < transposed_side; ++j)
      std::memcpy(target + j * target_stride + i * static_cast<std::int64_t>(sizeof(Element)),
                  source + i * source_stride + j * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
#endif
}

/// Transposes a matrix of any size. Strides in bytes, from row to row.
/// \param rows, columns  of the source.
template <class Element>
void transpose_matrix(std::int64_t rows, std::int64_t columns, const char* source, std::int64_t source_stride,
                      char* target, std::int64_t target_stride) {
  constexpr std::int64_t nbytes = sizeof(Element);
  if (rows < transposed_side || columns < transposed_side) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        std::memcpy(target + j * target_stride + i * nbytes, source + i * source_stride + j * nbytes, nbytes);
    return;
  }
  // the last squares overlap those before them if the sides are not multiples
  for (std::int64_t i = 0; i < rows; i += transposed_side)
    for (std::int64_t j = 0; j < columns; j += transposed_side) {
      const std::int64_t row = std::min(i, rows - transposed_side), column = std::min(j, columns - transposed_side);
      transpose_square<Element>(source + row * source_stride + column * nbytes, source_stride,
                                target + column * target_stride + row * nbytes, target_stride);
    }
}

}  // namespace dace_redist::detail
