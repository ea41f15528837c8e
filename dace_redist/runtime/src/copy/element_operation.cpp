// SPDX-License-Identifier: BSD-3-Clause
#include "copy/element_operation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "copy/chunk_walk.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/element_arithmetic.hpp"
#include "copy/line_writer.hpp"
#include "copy/reduce_rows.hpp"
#include "copy/stream_threshold.hpp"

namespace dace_redist {
namespace {

/// Bytes converted at a time before they are streamed.
constexpr std::int64_t streamed_bytes = 4096;
/// Elements converted at a time before they are combined with the target: they stay in the cache.
constexpr std::int64_t combined_count = 512;

/// Calls `body(from, to)` with the addresses of each element. Contiguous elements get a loop of their own, which
/// compilers vectorise.
template <std::int64_t source_bytes, std::int64_t target_bytes, class Body>
void for_each_element(const char* source, std::int64_t source_stride, char* target, std::int64_t target_stride,
                      std::int64_t count, const Body& body) {
  if (source_stride == source_bytes && target_stride == target_bytes)
    for (std::int64_t i = 0; i < count; ++i) body(source + i * source_bytes, target + i * target_bytes);
  else
    for (std::int64_t i = 0; i < count; ++i) body(source + i * source_stride, target + i * target_stride);
}

template <class From, class To>
void convert(const char* source, std::int64_t source_stride, char* target, std::int64_t target_stride,
             std::int64_t count) {
  for_each_element<sizeof(From), sizeof(To)>(
      source, source_stride, target, target_stride, count,
      [](const char* from, char* to) { store_element(to, converted<To>(load_element<From>(from))); });
}

/// As convert(), for a type that may not hold every value. \throws Error if an element does not fit.
template <class From, class To>
void convert_exactly(const char* source, std::int64_t source_stride, char* target, std::int64_t target_stride,
                     std::int64_t count) {
  using Limits = std::numeric_limits<To>;
  bool fits = true;
  From misfit{};
  for_each_element<sizeof(From), sizeof(To)>(
      source, source_stride, target, target_stride, count, [&](const char* from, char* to) {
        const From value = load_element<From>(from);
        const To made = static_cast<To>(value);
        const bool same = static_cast<From>(made) == value && (made < 0) == (value < 0);
        misfit = same ? misfit : value;
        fits = fits && same;
        store_element(to, made);
      });
  if (!fits)
    throw Error(text("wire: the element ", +misfit, " is not from ", +Limits::min(), " to ", +Limits::max(),
                     ": use a wider type, or none"));
}

/// The conversion from one type to another; null if that loses the kind of number. \param exactly  of integers.
template <class From>
auto conversion(ElementType target, bool exactly = false) {
  using Function = void (*)(const char*, std::int64_t, char*, std::int64_t, std::int64_t);
  return visit_element_type(target, [exactly](auto to) -> Function {
    using To = Arithmetic<decltype(to)>;
    if constexpr (!converts<From, To>()) return nullptr;
    if constexpr (std::is_integral_v<From> && std::is_integral_v<To>)
      if (exactly) return convert_exactly<From, To>;
    if constexpr (converts<From, To>()) return convert<From, To>;
  });
}

/// Combines elements with the current ones, see Combination; `source` holds elements of the target's type without gaps.
template <class T, Reduction reduction>
void combine(const ElementOperation& operation, const char* source, char* target, std::int64_t target_stride,
             std::int64_t count) {
  const Combination<T, static_cast<int>(reduction)> combination(operation);
  if (combination.reads_target())
    for_each_element<sizeof(T), sizeof(T)>(source, sizeof(T), target, target_stride, count,
                                           [combination](const char* from, char* to) {
                                             store_element(to, combination(load_element<T>(from), load_element<T>(to)));
                                           });
  else
    for_each_element<sizeof(T), sizeof(T)>(
        source, sizeof(T), target, target_stride, count,
        [combination](const char* from, char* to) { store_element(to, combination(load_element<T>(from), T())); });
}

/// \throws Error unless a factor is a number of the target's type `T`; of a floating-point type it is rounded.
template <class T>
void check_factor(const char* name, std::complex<double> factor, ElementType type) {
  bool fits = factor.imag() == 0 || is_complex<T>;
  if constexpr (std::is_integral_v<T>) {
    const double end = std::ldexp(1.0, std::numeric_limits<T>::digits), begin = std::is_signed_v<T> ? -end : 0;
    fits = fits && factor.real() >= begin && factor.real() < end && std::trunc(factor.real()) == factor.real();
  }
  if (fits) return;
  const std::string given = factor.imag() == 0 ? text(factor.real()) : text(factor);
  throw Error(text(name, " must be a number of the target's type ", element_name(type), ", got ", given));
}

}  // namespace

ElementKernel::ElementKernel(const ElementOperation& operation)
    : operation_(operation), target_bytes_(element_bytes_of(operation.target)) {
  const bool wired = operation.wire != ElementType::opaque;
  const auto find = [](ElementType from, ElementType to, bool exactly) {
    const Convert found =
        visit_element_type(from, [&](auto value) { return conversion<Arithmetic<decltype(value)>>(to, exactly); });
    if (found) return found;
    throw Error(text("elements of type ", element_name(from), " do not convert to ", element_name(to),
                     " without losing their kind (NumPy's casting rule \"same_kind\")"));
  };
  convert_ = find(operation.source, wired ? operation.wire : operation.target, wired);
  if (wired && operation.wire != operation.target) widen_ = find(operation.wire, operation.target, false);
  const auto reduction = static_cast<std::size_t>(operation.reduction);
  visit_element_type(operation.target, [&](auto to) {
    using T = Arithmetic<decltype(to)>;
    const bool conjugates = is_complex<T> && operation.conjugate;
    const bool scales = operation.alpha != 1.0 || operation.beta != 0.0 || conjugates;
    if constexpr (std::is_same_v<T, Boolean>) {
      if (scales) throw Error("bool elements cannot be scaled: use alpha=1, beta=0");
    } else {
      check_factor<T>("alpha", operation.alpha, operation.target);
      check_factor<T>("beta", operation.beta, operation.target);
      const bool ordered = operation.reduction == Reduction::min || operation.reduction == Reduction::max;
      if (is_complex<T> && ordered)
        throw Error(
            text(element_name(operation.target), " elements have no order: op min and max require real numbers"));
    }
    constexpr Combine combines[] = {combine<T, Reduction::none>, combine<T, Reduction::sum>,
                                    combine<T, Reduction::prod>, combine<T, Reduction::min>,
                                    combine<T, Reduction::max>};
    if (scales || reduction > 0) combine_ = combines[reduction];
    if (operation.source == operation.target && !scales && !wired)
      reduce_rows_ = row_reduction(operation.target, operation.reduction);
  });
}

void ElementKernel::convert_elements(const Row& row, std::int64_t first, std::int64_t count, char* to,
                                     std::int64_t to_stride) const {
  const char* const from = row.source + first * row.source_stride;
  if (!widen_) return convert_(from, row.source_stride, to, to_stride, count);
  const std::int64_t wire_bytes = element_bytes_of(operation_.wire);
  alignas(64) std::array<char, static_cast<std::size_t>(combined_count) * sizeof(std::complex<double>)> wired;
  for (std::int64_t done = 0; done < count; done += combined_count) {
    const std::int64_t some = std::min(combined_count, count - done);
    convert_(from + done * row.source_stride, row.source_stride, wired.data(), wire_bytes, some);
    widen_(wired.data(), wire_bytes, to + done * to_stride, to_stride, some);
  }
}

void ElementKernel::apply_row(const Row& row) const {
  if (!combine_) return convert_elements(row, 0, row.count, row.target, row.target_stride);
  alignas(64) std::array<char, static_cast<std::size_t>(combined_count) * sizeof(std::complex<double>)> converted;
  const bool in_place = operation_.source == operation_.target && operation_.wire == ElementType::opaque &&
                        row.source_stride == target_bytes_;
  for (std::int64_t done = 0; done < row.count; done += combined_count) {
    const std::int64_t some = std::min(combined_count, row.count - done);
    const char* from = row.source + done * row.source_stride;
    if (!in_place) {
      convert_elements(row, done, some, converted.data(), target_bytes_);
      from = converted.data();
    }
    combine_(operation_, from, row.target + done * row.target_stride, row.target_stride, some);
  }
}

void ElementKernel::stream_row(const Row& row, detail::LineWriter& writer) const {
  const std::int64_t most = streamed_bytes / target_bytes_;
  // the following source bytes, mostly the next receiver's part, are prefetched unless gaps would be prefetched, too
  const bool dense = row.source_stride > 0 && row.source_stride <= detail::line_bytes;
  const std::int64_t lines_at_once = (row.source_stride + target_bytes_ - 1) / target_bytes_;
  const bool direct = row.count * target_bytes_ >= detail::direct_stream_run;
  alignas(64) std::array<char, static_cast<std::size_t>(streamed_bytes)> buffer;
  for (std::int64_t done = 0; done < row.count; done += most) {
    const std::int64_t some = std::min(most, row.count - done);
    char* const target = row.target + done * target_bytes_;
    char* const to = direct ? buffer.data() : writer.place(target, some * target_bytes_);
    const char* const source = row.source + done * row.source_stride;
    apply_row({source, to, row.source_stride, target_bytes_, some});
    if (!direct) continue;
    detail::LinesAhead lines;
    if (dense)
      lines = detail::LinesAhead(detail::address_at(source, some * row.source_stride), 1, 0, some * row.source_stride);
    detail::StreamRun::copy(to, target, some * target_bytes_, lines, lines_at_once);
  }
}

void ElementKernel::apply(const CopyBlock& block, const char* source, char* target, bool stream) const {
  const CopyEndpoints endpoint{source + block.source_offset, target + block.target_offset};
  apply_batch(block, &endpoint, 1, stream, false);
}

void ElementKernel::apply_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream,
                                bool stream_short_rows) const {
  if (block.run_bytes == 0) return;
  const int last = block.ndim - 1;
  const std::int64_t row_bytes = block.ndim > 0 ? block.counts[static_cast<std::size_t>(last)] * target_bytes_ : 0;
  const int transposed = detail::transposed_dimension(block), row_dim = transposed < 0 ? block.ndim - 2 : transposed;
  const bool tiled = transposed >= 0;
  const std::int64_t tile_side = tiled ? 64 : detail::ChunkWalk::all;
  const auto for_each_row = [&](const auto& visit) {
    detail::ChunkWalk walk(block, row_dim, tile_side, tile_side);
    do {
      const detail::Plane plane = walk.plane();
      const auto visit_row = [&](std::size_t p, std::int64_t row) {
        visit(p, Row{endpoints[p].source + walk.source() + row * plane.source_row,
                     endpoints[p].target + walk.target() + row * plane.target_row, plane.source_column,
                     plane.target_column, plane.columns});
      };
      if (tiled)
        for (std::size_t p = 0; p < count; ++p)
          for (std::int64_t row = 0; row < plane.rows; ++row) visit_row(p, row);
      else
        for (std::int64_t row = 0; row < plane.rows; ++row)
          for (std::size_t p = 0; p < count; ++p) visit_row(p, row);
    } while (walk.advance());
  };
  const bool contiguous = block.ndim > 0 && block.target_strides[static_cast<std::size_t>(last)] == target_bytes_;
  const bool long_enough = stream_short_rows ? detail::target_span(block) >= detail::min_streamed_span
                                             : row_bytes >= detail::direct_stream_run;
  if (!stream || !detail::can_stream || tiled || reads_target() || !contiguous || !long_enough)
    return for_each_row([this](std::size_t, const Row& row) { apply_row(row); });
  detail::LineWriters writers(count);
  for_each_row([&](std::size_t p, const Row& row) { stream_row(row, writers[p]); });
  writers.finish();
  detail::stream_fence();
}

void ElementSteps::set(const ElementOperation& operation, std::int64_t source_bytes) {
  direct_ = pack_ = unpack_ = {source_bytes, source_bytes, nullptr};
  if (operation.is_copy()) return;
  const std::int64_t target_bytes = element_bytes_of(operation.target);
  const bool wired = operation.wire != ElementType::opaque, source_travels = source_bytes < target_bytes;
  ElementOperation conversion, rest = operation;
  conversion.source = operation.source;
  conversion.wire = operation.wire;
  conversion.target = wired ? operation.wire : source_travels ? operation.source : operation.target;
  rest.source = conversion.target;
  rest.wire = ElementType::opaque;
  const std::int64_t message_bytes = element_bytes_of(conversion.target);
  if (message_bytes > std::min(source_bytes, target_bytes))
    throw Error(text("the type on the wire, ", element_name(operation.wire), ", has ", message_bytes,
                     " bytes; elements travel in ", std::min(source_bytes, target_bytes), " without it"));
  pack_ = {source_bytes, message_bytes, kernel(pack_kernel_, conversion)};
  unpack_ = {message_bytes, target_bytes, kernel(unpack_kernel_, rest)};
  direct_ = {source_bytes, target_bytes, kernel(direct_kernel_, operation)};
}

const ElementKernel* ElementSteps::kernel(ElementKernel& made, const ElementOperation& operation) {
  if (operation.is_copy()) return nullptr;
  made = ElementKernel(operation);
  return &made;
}

}  // namespace dace_redist
