// SPDX-License-Identifier: BSD-3-Clause
#include "copy/reduce_rows.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "copy/copy_kernels.hpp"
#include "copy/element_arithmetic.hpp"

namespace dace_redist {
namespace {

/// Prefetch distance in the rows of a source, in bytes; in rows up to this length, the next row is prefetched.
constexpr std::int64_t bytes_ahead = 4096;

/// Rows that are reduced in registers; more in groups of as many, whose results are reduced then.
constexpr std::size_t rows_at_once = 8;
static_assert(max_batch <= rows_at_once * rows_at_once);
/// Bytes of a row that are reduced in groups at a time: their results stay in the first-level cache.
constexpr std::int64_t grouped_bytes = 4096;

/// The reduction of `count` elements in a binary tree. \param element  returns that of an index.
template <Reduction reduction, std::size_t count, std::size_t first = 0, class Element>
[[gnu::always_inline]] inline auto reduced_in_tree(const Element& element) {
  if constexpr (count == 1) {
    return element(first);
  } else {
    constexpr std::size_t left = count > 4 ? 4 : count > 2 ? 2 : 1;
    const auto earlier = reduced_in_tree<reduction, left, first>(element);
    return reduced(reduction, reduced_in_tree<reduction, count - left, first + left>(element), earlier);
  }
}

/// Reduces a row of each source, a line at a time, with prefetches between the stores. Elements are read one by one,
/// not copied first: vectors are then loaded at their full width.
template <class T, Reduction reduction, std::size_t source_count>
void reduce_few_rows(const ElementKernel::ReducedRows& rows) {
  constexpr auto nbytes = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t r = 0; r < rows.row_count; ++r) {
    char* const target = rows.target + r * rows.target_stride;
    std::array<const char*, source_count> from;  // in registers: loops over sources are unrolled
#pragma GCC unroll 8
    for (std::size_t s = 0; s < source_count; ++s) from[s] = rows.sources[s].row + r * rows.sources[s].row_stride;
    const auto reduced_at = [&from](std::int64_t at) __attribute__((always_inline)) {
      return reduced_in_tree<reduction, source_count>([&](std::size_t s) { return load_element<T>(from[s] + at); });
    };
    std::int64_t at = 0;
    const auto reduce_until = [&](std::int64_t end) {
      const std::int64_t count = (end - at) / nbytes;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) store_element(target + at + i * nbytes, reduced_at(at + i * nbytes));
      at += count * nbytes;
    };
    if (rows.stream) reduce_until(std::min(detail::bytes_to_line(target), rows.row_bytes));
    for (; at + detail::line_bytes <= rows.row_bytes; at += detail::line_bytes) {
      alignas(detail::line_bytes) std::array<T, static_cast<std::size_t>(detail::line_bytes / nbytes)> line;
#pragma GCC unroll 8
      for (std::size_t s = 0; s < source_count; ++s)
        detail::prefetch_line(
            detail::address_at(from[s] + at, rows.row_bytes > bytes_ahead ? bytes_ahead : rows.sources[s].row_stride));
#pragma omp simd
      for (std::size_t i = 0; i < line.size(); ++i) line[i] = reduced_at(at + static_cast<std::int64_t>(i) * nbytes);
      const auto* const bytes = reinterpret_cast<const char*>(line.data());
      if (rows.stream)
        detail::stream_line(bytes, target + at);
      else
        std::memcpy(target + at, bytes, detail::line_bytes);
    }
    reduce_until(rows.row_bytes);
  }
}

/// Reduces rows of contiguous elements, see ReducedRows.
template <class T, Reduction reduction>
void reduce_rows(const ElementKernel::ReducedRows& rows) {
  constexpr void (*few[])(const ElementKernel::ReducedRows&) = {
      reduce_few_rows<T, Reduction::none, 1>, reduce_few_rows<T, reduction, 2>, reduce_few_rows<T, reduction, 3>,
      reduce_few_rows<T, reduction, 4>,       reduce_few_rows<T, reduction, 5>, reduce_few_rows<T, reduction, 6>,
      reduce_few_rows<T, reduction, 7>,       reduce_few_rows<T, reduction, 8>};
  if (rows.source_count <= rows_at_once) return few[rows.source_count - 1](rows);
  using Source = ElementKernel::ReducedRows::Source;
  constexpr std::size_t most_groups = (max_batch - 1) / rows_at_once + 1;
  alignas(detail::line_bytes) std::array<std::array<char, grouped_bytes + detail::line_bytes>, most_groups> results;
  const std::int64_t rows_of_piece = std::max<std::int64_t>(1, grouped_bytes / rows.row_bytes);
  for (std::int64_t r = 0; r < rows.row_count; r += rows_of_piece) {
    char* const target = rows.target + r * rows.target_stride;
    const std::int64_t row_count = std::min(rows_of_piece, rows.row_count - r);
    for (std::int64_t at = 0, some; at < rows.row_bytes; at += some) {
      some = std::min(detail::bytes_to_line(target + at) + grouped_bytes, rows.row_bytes - at);
      std::array<Source, rows_at_once> group;
      std::array<Source, most_groups> groups;
      std::size_t group_count = 0;
      for (std::size_t s = 0; s < rows.source_count; s += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, rows.source_count - s);
        for (std::size_t k = 0; k < count; ++k) {
          const Source& source = rows.sources[s + k];
          group[k] = {source.row + r * source.row_stride + at, row_count > 1 ? source.row_stride : bytes_ahead};
        }
        char* const result = results[group_count].data();
        few[count - 1]({group.data(), count, result, some, row_count, some, false});
        groups[group_count++] = {result, some};
      }
      few[group_count - 1]({groups.data(), group_count, target + at, rows.target_stride, row_count, some, rows.stream});
    }
  }
}

/// The function for a type and a reduction. Sums and products of integers of a size share one: they wrap around.
template <class T, Reduction reduction>
constexpr ElementKernel::RowReduction row_reduction_of() {
  constexpr bool ordered = reduction == Reduction::min || reduction == Reduction::max;
  if constexpr (std::is_same_v<T, Boolean> || (is_complex<T> && ordered))
    return nullptr;
  else if constexpr (std::is_integral_v<T> && !ordered)
    return reduce_rows<std::make_unsigned_t<T>, reduction>;
  else
    return reduce_rows<T, reduction>;
}

}  // namespace

ElementKernel::RowReduction row_reduction(ElementType type, Reduction reduction) {
  return visit_element_type(type, [reduction](auto element) {
    using T = Arithmetic<decltype(element)>;
    constexpr ElementKernel::RowReduction functions[reduction_count] = {
        nullptr, row_reduction_of<T, Reduction::sum>(), row_reduction_of<T, Reduction::prod>(),
        row_reduction_of<T, Reduction::min>(), row_reduction_of<T, Reduction::max>()};
    return functions[static_cast<std::size_t>(reduction)];
  });
}

}  // namespace dace_redist
