// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Compares merged(), make_copy_block(), copy(), slice(), CopyList and reduce_blocks() with a loop over elements, on
/// many random boxes.
///
/// Usage: test_copy [boxes] [seed]

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "copy/copy.hpp"
#include "copy/element_operation.hpp"
#include "copy/reduce_blocks.hpp"
#include "copy/run_list.hpp"
#include "copy/transpose.hpp"
#include "core/error.hpp"
#include "random_box.hpp"

namespace {

using namespace dace_redist;
using Bytes = std::vector<unsigned char>;

constexpr StridedBlock plain_box(std::int64_t rows, std::int64_t columns, std::int64_t source_row) {
  return {2, 0, 0, {rows, columns}, {source_row, 1}, {columns, 1}};
}

static_assert(StridedBlock{}.count() == 1);
static_assert(plain_box(3, 4, 9).count() == 12);
static_assert(plain_box(3, 0, 9).count() == 0);
static_assert(merged(plain_box(3, 4, 4)).ndim == 1 && merged(plain_box(3, 4, 4)).counts[0] == 12);
static_assert(merged(plain_box(3, 4, 9)).ndim == 2);
static_assert(merged(plain_box(1, 4, 9)).ndim == 1 && merged(plain_box(1, 1, 9)).ndim == 0);
static_assert(CopyBlock{}.contiguous() && CopyBlock{}.nbytes() == 0);

/// One random box, the arrays it lies in and how it is copied.
struct Case {
  StridedBlock block;
  std::int64_t element_bytes = 1, source_elements = 1, target_elements = 1;
  std::size_t source_shift = 0, target_shift = 0;  // bytes by which the arrays miss the alignment of a cache line
  bool stream = false;
  int parts = 1;
};

Case random_case(Random& random) {
  constexpr std::array<std::int64_t, 12> element_sizes{1, 2, 4, 8, 16, 32, 64, 8, 3, 12, 24, 0};
  Case made;
  made.element_bytes = element_sizes[static_cast<std::size_t>(random.between(0, 11))];
  if (made.element_bytes == 0) made.element_bytes = random.between(1, 600);
  const std::int64_t max_bytes = random.one_in(8) ? 200000 : 10000;
  const Box box = random_box(random, {8, std::max<std::int64_t>(1, max_bytes / made.element_bytes), 600, 5, false});
  made.block = box.block;
  made.block.source_offset = box.source_before;
  made.block.target_offset = random.between(0, 5);
  made.source_elements = box.source_extent;
  made.target_elements = box.target_extent + made.block.target_offset;
  made.source_shift = random.one_in(2) ? 0 : static_cast<std::size_t>(random.between(0, 63));
  made.target_shift = random.one_in(2) ? 0 : static_cast<std::size_t>(random.between(0, 63));
  made.stream = random.one_in(2);
  made.parts = random.one_in(2) ? 1 : static_cast<int>(random.between(2, 9));
  return made;
}

/// The oracle: one element after the other, in the order of the dimensions as they are given.
void copy_elements(const StridedBlock& block, std::int64_t element_bytes, const unsigned char* source,
                   unsigned char* target) {
  for_each_element(block, [&](std::int64_t from, std::int64_t to) {
    std::memcpy(target + to * element_bytes, source + from * element_bytes, static_cast<std::size_t>(element_bytes));
  });
}

void print_case(const Case& made, const char* what) {
  std::printf("FAILED: %s: %d dimensions, element %lld bytes, stream %d, parts %d, shifts %zu %zu, offsets %lld %lld\n",
              what, made.block.ndim, static_cast<long long>(made.element_bytes), made.stream, made.parts,
              made.source_shift, made.target_shift, static_cast<long long>(made.block.source_offset),
              static_cast<long long>(made.block.target_offset));
  for (std::size_t d = 0; d < static_cast<std::size_t>(made.block.ndim); ++d)
    std::printf("  count %lld, source stride %lld, target stride %lld\n", static_cast<long long>(made.block.counts[d]),
                static_cast<long long>(made.block.source_strides[d]),
                static_cast<long long>(made.block.target_strides[d]));
}

/// Bytes at a chosen distance from a line boundary; `guard` bytes more on both sides.
class Array {
 public:
  Array(std::size_t nbytes, std::size_t shift, std::size_t guard) : bytes_(nbytes + shift + 2 * guard + 64) {
    void* base = bytes_.data();
    std::size_t space = bytes_.size();
    start_ = static_cast<unsigned char*>(std::align(64, 1, base, space)) - bytes_.data();
    start_ += static_cast<std::ptrdiff_t>(shift + guard);
  }
  Bytes& bytes() { return bytes_; }
  unsigned char* data() { return bytes_.data() + start_; }

 private:
  Bytes bytes_;
  std::ptrdiff_t start_ = 0;
};

enum class By { blocks, runs, threads, lists };

bool copies_like_the_oracle(const Case& made, const StridedBlock& block, int parts, By by) {
  const auto source_bytes = static_cast<std::size_t>(made.source_elements * made.element_bytes);
  const auto target_bytes = static_cast<std::size_t>(made.target_elements * made.element_bytes);
  Array target(target_bytes, made.target_shift, 128);
  std::fill(target.bytes().begin(), target.bytes().end(), static_cast<unsigned char>(0xA5));
  // the source ends where its allocation ends, so that a sanitizer sees a read past it
  Bytes source(source_bytes + made.source_shift);
  std::mt19937 values(static_cast<unsigned>(source_bytes));
  for (unsigned char& value : source) value = static_cast<unsigned char>(values());
  const unsigned char* const from = source.data() + made.source_shift;

  const std::ptrdiff_t start = target.data() - target.bytes().data();
  Bytes expected = target.bytes();
  copy_elements(made.block, made.element_bytes, from, expected.data() + start);

  const CopyBlock whole = make_copy_block(block, made.element_bytes);
  if (whole.nbytes() != made.block.count() * made.element_bytes) return false;
  std::int64_t nbytes = 0;
  CopyList list;
#ifdef _OPENMP
  const int threads = parts;
#else
  const int threads = 1;
#endif
  for (int part = 0; part < parts; ++part) {
    const CopyBlock piece = slice(whole, part, parts);
    nbytes += piece.nbytes();
    if (by == By::runs)
      list.append_runs(piece);
    else if (by == By::lists)
      list.append(piece);
    else if (by == By::threads)
      copy(part == 0 ? whole : CopyBlock{}, from, target.data(), made.stream, threads);
    else
      copy(piece, from, target.data(), made.stream);
  }
  copy_threaded(list, reinterpret_cast<const char*>(from), reinterpret_cast<char*>(target.data()), threads);
  return nbytes == whole.nbytes() && target.bytes() == expected;
}

/// copy_batch() for runs that do or do not fill lines, to targets whose rows begin anywhere in a line; each with the
/// line for shift 0.
bool copies_batches_like_the_oracle(std::int64_t run_bytes, std::int64_t columns, std::size_t shift, bool stream) {
  constexpr std::size_t target_count = 3, guard = 128;
  const std::int64_t row_bytes = columns * run_bytes, gap = shift > 0 ? 52 : 128 - row_bytes % 64;
  const std::int64_t step = static_cast<std::int64_t>(target_count) * run_bytes + 4;
  const StridedBlock box{3, 0, 0, {3, columns, run_bytes}, {columns * step, step, 1}, {row_bytes + gap, run_bytes, 1}};
  Bytes source(static_cast<std::size_t>(3 * box.source_strides[0] - 4));
  std::mt19937 values(1);
  for (unsigned char& value : source) value = static_cast<unsigned char>(values());
  std::vector<Array> targets;
  std::vector<Bytes> expected;
  std::array<CopyEndpoints, target_count> starts{};
  for (std::size_t p = 0; p < target_count; ++p) {
    Array& target =
        targets.emplace_back(static_cast<std::size_t>(3 * box.target_strides[0]), shift > 0 ? shift + 5 * p : 0, guard);
    const unsigned char* const from = source.data() + static_cast<std::int64_t>(p) * run_bytes;
    Bytes& wanted = expected.emplace_back(target.bytes());
    copy_elements(box, 1, from, wanted.data() + (target.data() - target.bytes().data()));
    starts[p] = {reinterpret_cast<const char*>(from), reinterpret_cast<char*>(target.data())};
  }
  copy_batch(make_copy_block(box, 1), starts.data(), target_count, stream);
  for (std::size_t p = 0; p < target_count; ++p)
    if (targets[p].bytes() != expected[p]) return false;
  return true;
}

bool copies_batches_like_the_oracle() {
  for (const std::int64_t run_bytes : {4, 36, 64, 68, 72, 80, 96, 100, 128, 160, 192, 500, 512, 960, 1020, 1024})
    for (const std::int64_t columns : {2, 3, 5, 16, 37})
      for (const std::size_t shift : {std::size_t{0}, std::size_t{16}, std::size_t{44}})
        for (const bool stream : {false, true})
          if (!copies_batches_like_the_oracle(run_bytes, columns, shift, stream)) {
            std::printf("FAILED: copy_batch of %lld runs of %lld bytes, shift %zu%s\n", static_cast<long long>(columns),
                        static_cast<long long>(run_bytes), shift, stream ? ", non-temporal" : "");
            return false;
          }
  return true;
}

/// Some rows for each of three receivers, whose parts lie beside each other in a row of the source: float64 becomes
/// float32, times alpha, in targets with or without gaps between their rows, at several alignments.
bool converts_batches_like_the_oracle(std::int64_t columns, std::int64_t gap, float alpha, bool stream,
                                      bool short_rows) {
  constexpr std::int64_t rows = 9, target_count = 3;
  const std::int64_t row_elements = columns + gap, part = gap + rows * row_elements + 1;
  const StridedBlock box{2, 0, 0, {rows, columns}, {target_count * columns, 1}, {row_elements, 1}};
  std::vector<double> source(static_cast<std::size_t>(rows * target_count * columns));
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<double>(i) + 0.25;
  std::vector<float> target(static_cast<std::size_t>(target_count * part), -1.0f), expected = target;
  std::array<CopyEndpoints, target_count> endpoints;
  for (std::int64_t p = 0; p < target_count; ++p) {
    endpoints[static_cast<std::size_t>(p)] = {reinterpret_cast<const char*>(source.data() + p * columns),
                                              reinterpret_cast<char*>(target.data() + p * part + gap)};
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        expected[static_cast<std::size_t>(p * part + gap + row * row_elements + column)] =
            alpha * static_cast<float>(source[static_cast<std::size_t>((row * target_count + p) * columns + column)]);
  }
  ElementOperation operation;
  operation.source = ElementType::float64;
  operation.target = ElementType::float32;
  operation.alpha = static_cast<double>(alpha);
  const ElementKernel kernel(operation);
  kernel.apply_batch(make_element_block(box, 8, 4), endpoints.data(), endpoints.size(), stream, short_rows);
  if (target == expected) return true;
  std::printf("FAILED: conversion of a batch: %lld columns, gap %lld, alpha %g, stream %d %d\n",
              static_cast<long long>(columns), static_cast<long long>(gap), static_cast<double>(alpha), stream,
              short_rows);
  return false;
}

bool converts_batches_like_the_oracle() {
  for (const std::int64_t columns : {1, 7, 31, 63, 64, 65, 100, 255, 1023, 1024, 1025, 3001})
    for (const std::int64_t gap : {0, 1, 4, 15})
      for (const float alpha : {1.0f, 0.1f})  // the latter rounds: conversion comes before the product
        for (const bool stream : {false, true})
          if (!converts_batches_like_the_oracle(columns, gap, alpha, stream, false) ||
              !converts_batches_like_the_oracle(columns, gap, alpha, stream, true))
            return false;
  return true;
}

/// A box of float32 becomes float64, times 2.
bool converts_like_the_oracle(const Case& made) {
  std::vector<float> source(static_cast<std::size_t>(made.source_elements));
  std::iota(source.begin(), source.end(), 1.0f);
  std::vector<double> target(static_cast<std::size_t>(made.target_elements), -1.0), expected = target;
  for_each_element(made.block, [&](std::int64_t from, std::int64_t to) {
    expected[static_cast<std::size_t>(to)] = 2.0 * source[static_cast<std::size_t>(from)];
  });
  ElementOperation operation;
  operation.source = ElementType::float32;
  operation.target = ElementType::float64;
  operation.alpha = 2.0;
  ElementKernel(operation).apply(make_element_block(made.block, 4, 8), reinterpret_cast<const char*>(source.data()),
                                 reinterpret_cast<char*>(target.data()), made.stream);
  return target == expected;
}

void write_number(char* to, ElementType type, double number) {
  visit_element_type(type, [&](auto zero) {
    const auto value = static_cast<decltype(zero)>(number);
    std::memcpy(to, &value, sizeof value);
  });
}

/// reduce_blocks() of 1 to 20 sources, each with its own strides and alignment, some of them in the type of messages.
bool reduces_like_the_oracle(const Case& made, Random& random) {
  constexpr std::array<std::array<ElementType, 2>, 5> types{{{ElementType::float64, ElementType::float64},
                                                             {ElementType::float32, ElementType::float64},
                                                             {ElementType::float64, ElementType::float32},
                                                             {ElementType::int16, ElementType::int16},
                                                             {ElementType::complex128, ElementType::complex128}}};
  const std::array<ElementType, 2>& chosen = types[static_cast<std::size_t>(random.between(0, 4))];
  const ElementType source_type = chosen[0], target_type = chosen[1];
  ElementOperation operation;
  operation.source = source_type;
  operation.target = target_type;
  const bool ordered = target_type != ElementType::complex128 && random.one_in(3);
  operation.reduction = ordered ? Reduction::max : Reduction::sum;
  if (random.one_in(3)) operation.alpha = 2.0;
  if (!ordered && random.one_in(3)) operation.beta = 3.0;
  ReductionSteps steps;
  steps.set(operation, element_bytes_of(source_type));

  const std::int64_t target_bytes = element_bytes_of(target_type);
  const auto nbytes = static_cast<std::size_t>(made.target_elements * target_bytes);
  Array target(nbytes, made.target_shift, 128);
  constexpr double before = 1;
  std::vector<double> numbers(static_cast<std::size_t>(made.target_elements), operation.beta.real() * before);
  for (std::int64_t at = 0; at < made.target_elements; ++at)
    write_number(reinterpret_cast<char*>(target.data()) + at * target_bytes, target_type, before);
  Bytes expected = target.bytes();

  std::vector<Bytes> sources;
  std::vector<PartialBlock> blocks;
  const std::int64_t source_count = random.between(1, random.one_in(4) ? 20 : 4);
  const ElementType message_type = element_bytes_of(source_type) < target_bytes ? source_type : target_type;
  for (std::int64_t turn = 0; turn < source_count; ++turn) {
    const bool packed = random.one_in(2);
    PartialBlock partial = steps.leaf(turn, packed);
    partial.block = made.block;
    partial.block.source_offset = 0;
    const auto order = random_order(random, static_cast<std::size_t>(made.block.ndim));
    const std::int64_t count = fill_strides(random, made.block, order, partial.block.source_strides);
    const auto shift = static_cast<std::size_t>(random.one_in(2) ? 0 : random.between(0, 63));
    Bytes& bytes = sources.emplace_back(shift + static_cast<std::size_t>(count * partial.source_bytes));
    char* const start = reinterpret_cast<char*>(bytes.data()) + shift;
    for_each_element(partial.block, [&](std::int64_t from, std::int64_t to) {
      const auto number = static_cast<double>(random.between(0, 9));
      write_number(start + from * partial.source_bytes, packed ? message_type : source_type, number);
      double& there = numbers[static_cast<std::size_t>(to)];
      const double value = operation.alpha.real() * number;
      there = ordered ? turn == 0 ? value : std::max(there, value) : there + value;
    });
    partial.source = start;
    blocks.push_back(partial);
  }
  for_each_element(made.block, [&](std::int64_t, std::int64_t to) {
    char* const start = reinterpret_cast<char*>(expected.data()) + (target.data() - target.bytes().data());
    write_number(start + to * target_bytes, target_type, numbers[static_cast<std::size_t>(to)]);
  });
  reduce_blocks(blocks, steps.sums(), target_bytes, reinterpret_cast<char*>(target.data()), made.stream);
  return target.bytes() == expected;
}

/// What becomes of the largest numbers of an integer type.
template <class T>
bool wraps_around(ElementType type) {
  constexpr std::size_t count = 100;
  constexpr std::uint64_t largest = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  const auto gives = [&](Reduction reduction, double alpha, double beta, std::uint64_t expected) {
    ElementOperation operation;
    operation.source = operation.target = type;
    operation.reduction = reduction;
    operation.alpha = alpha;
    operation.beta = beta;
    const std::vector<T> source(count, static_cast<T>(largest));
    std::vector<T> target(source);
    ElementKernel(operation).apply_row({reinterpret_cast<const char*>(source.data()),
                                        reinterpret_cast<char*>(target.data()), sizeof(T), sizeof(T),
                                        static_cast<std::int64_t>(count)});
    return target == std::vector<T>(count, static_cast<T>(expected));
  };
  return gives(Reduction::sum, 1, 0, largest + largest) && gives(Reduction::prod, 1, 0, largest * largest) &&
         gives(Reduction::none, 3, 5, 8 * largest) && gives(Reduction::sum, 3, 0, 4 * largest);
}

bool integers_wrap_around() {
  return wraps_around<std::int8_t>(ElementType::int8) && wraps_around<std::uint16_t>(ElementType::uint16) &&
         wraps_around<std::int32_t>(ElementType::int32) && wraps_around<std::int64_t>(ElementType::int64) &&
         wraps_around<std::uint64_t>(ElementType::uint64);
}

/// Factors are numbers of the target's type.
bool factors_are_checked() {
  const auto said = [](ElementType type, std::complex<double> alpha, double beta) -> std::string {
    ElementOperation operation;
    operation.source = operation.target = type;
    operation.alpha = alpha;
    operation.beta = beta;
    try {
      const ElementKernel made(operation);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const double end = std::ldexp(1.0, 63);
  return said(ElementType::int8, -128, 127).empty() && said(ElementType::int64, -end, 0).empty() &&
         said(ElementType::uint64, end, 0).empty() && said(ElementType::float32, 2.1, 0.1).empty() &&
         said(ElementType::complex64, {2, 1}, 0).empty() &&
         said(ElementType::int8, 128, 0) == "alpha must be a number of the target's type int8, got 128" &&
         said(ElementType::int32, 1, 2.5) == "beta must be a number of the target's type int32, got 2.5" &&
         said(ElementType::uint8, -1, 0) == "alpha must be a number of the target's type uint8, got -1" &&
         said(ElementType::float64, {2, 1}, 0) == "alpha must be a number of the target's type float64, got (2,1)" &&
         !said(ElementType::int64, end, 0).empty() && !said(ElementType::int64, std::nan(""), 0).empty();
}

/// Parts of a block that can be cut well differ by an eighth at most.
bool slices_are_even() {
  const CopyBlock block = make_copy_block(plain_box(1000, 8, 9), 8);
  for (int parts = 1; parts < 64; ++parts)
    for (int part = 0; part < parts; ++part)
      if (slice(block, part, parts).nbytes() * parts > block.nbytes() * 9 / 8) return false;
  const CopyBlock run = make_copy_block(plain_box(1, 1 << 20, 1), 8);
  return run.contiguous() && slice(run, 2, 3).contiguous() && slice(run, 2, 3).nbytes() * 3 < run.nbytes() + 192;
}

/// Matrices of each size, in arrays that end where their allocations end.
template <class Element>
bool transposes_like_the_oracle() {
  for (std::size_t rows = 0; rows < 20; ++rows)
    for (std::size_t columns = 0; columns < 20; ++columns) {
      std::vector<Element> source(rows * columns), target(rows * columns);
      std::iota(source.begin(), source.end(), Element{1});
      detail::transpose_matrix<Element>(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
                                        reinterpret_cast<const char*>(source.data()), columns * sizeof(Element),
                                        reinterpret_cast<char*>(target.data()), rows * sizeof(Element));
      for (std::size_t at = 0; at < source.size(); ++at)
        if (target[at % columns * rows + at / columns] != source[at]) return false;
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const long boxes = argc > 1 ? std::atol(argv[1]) : 2000;
  Random random(argc > 2 ? static_cast<unsigned>(std::atol(argv[2])) : 1);
  long passed = 0;
  const auto check = [&passed](bool good, const Case& made, const char* what) {
    if (!good) print_case(made, what);
    passed += good;
    return good;
  };
  for (long box = 0; box < boxes; ++box) {
    const Case made = random_case(random);
    const StridedBlock smaller = merged(made.block);
    if (!check(smaller.count() == made.block.count() && smaller.ndim <= made.block.ndim, made, "merged") ||
        !check(copies_like_the_oracle(made, made.block, 1, By::blocks), made, "copy") ||
        !check(copies_like_the_oracle(made, smaller, made.parts, By::blocks), made, "copy of slices") ||
        !check(copies_like_the_oracle(made, smaller, made.parts, By::runs), made, "copy of a list of runs") ||
        !check(copies_like_the_oracle(made, smaller, made.parts, By::threads), made, "copy by threads") ||
        !check(copies_like_the_oracle(made, smaller, made.parts, By::lists), made, "list of copies by threads") ||
        !check(converts_like_the_oracle(made), made, "conversion") ||
        !check(reduces_like_the_oracle(made, random), made, "reduction of several blocks"))
      return 1;
  }
  if (!check(copies_batches_like_the_oracle(), Case{}, "copy_batch")) return 1;
  if (!check(converts_batches_like_the_oracle(), Case{}, "conversion of a batch")) return 1;
  if (!check(integers_wrap_around(), Case{}, "integers that wrap around")) return 1;
  if (!check(factors_are_checked(), Case{}, "factors")) return 1;
  if (!check(slices_are_even(), Case{}, "slice")) return 1;
  if (!check(transposes_like_the_oracle<std::uint32_t>(), Case{}, "transpose of 4 bytes")) return 1;
  if (!check(transposes_like_the_oracle<std::uint64_t>(), Case{}, "transpose of 8 bytes")) return 1;
  if (!check(stream_threshold_bytes() >= 0, Case{}, "stream_threshold_bytes")) return 1;
  std::printf("%ld checks passed\n", passed);
  return 0;
}
