// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Compares the tile kernels of a device, run by the processor, with a loop over elements and with ElementKernel, on
/// many random lists of blocks.
///
/// Usage: test_device_copy [lists] [seed]

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "copy/element_operation.cpp"
#include "device/host_copy_kernel.hpp"

namespace {

using namespace dace_redist;
using Bytes = std::vector<char>;
using Index = std::int64_t;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  Index between(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }
  std::vector<std::size_t> permutation(std::size_t n) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), engine_);
    return order;
  }

 private:
  std::mt19937 engine_;
};

/// A block whose offsets are 0, and the elements that it needs before and after its start on both sides.
struct Shape {
  StridedBlock block;
  Index source_before = 0, source_extent = 1, target_before = 0, target_extent = 1;
};

/// Strides of an array that holds the counts, its dimensions in `order` (outermost first), with random gaps.
Index fill_strides(Random& random, const StridedBlock& block, const std::vector<std::size_t>& order,
                   std::array<Index, max_block_dims>& strides) {
  Index stride = random.one_in(8) ? 2 : 1;
  for (std::size_t at = order.size(); at-- > 0;) {
    strides[order[at]] = stride;
    stride *= std::max<Index>(1, block.counts[order[at]]) + (random.one_in(4) ? random.between(1, 3) : 0);
  }
  return stride;
}

Shape random_shape(Random& random, Index most_elements) {
  Shape made;
  StridedBlock& block = made.block;
  block.ndim = static_cast<int>(random.between(random.one_in(10) ? 0 : 1, 6));
  const auto ndim = static_cast<std::size_t>(block.ndim);
  Index left = most_elements;
  for (const std::size_t d : random.permutation(ndim)) {
    block.counts[d] = random.between(1, std::min<Index>(left, random.one_in(2) ? 300 : 6));
    left = std::max<Index>(1, left / block.counts[d]);
  }
  if (ndim > 0 && random.one_in(60)) block.counts[ndim / 2] = 0;
  std::vector<std::size_t> natural(ndim);
  std::iota(natural.begin(), natural.end(), std::size_t{0});
  made.source_extent =
      fill_strides(random, block, random.one_in(3) ? natural : random.permutation(ndim), block.source_strides);
  made.target_extent =
      fill_strides(random, block, random.one_in(3) ? natural : random.permutation(ndim), block.target_strides);
  for (std::size_t d = 0; d < ndim; ++d) {
    const Index last = std::max<Index>(0, block.counts[d] - 1);
    if (random.one_in(8)) {
      made.source_before += last * block.source_strides[d];
      block.source_strides[d] = -block.source_strides[d];
    } else if (random.one_in(20)) {
      block.source_strides[d] = 0;
    }
    if (random.one_in(12)) {
      made.target_before += last * block.target_strides[d];
      block.target_strides[d] = -block.target_strides[d];
    }
  }
  return made;
}

/// Bytes that begin at a chosen distance from an address that 16 divides.
class Memory16 {
 public:
  Memory16(std::size_t nbytes, std::size_t shift) : bytes_(nbytes + 32), nbytes_(nbytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    first_ = (16 - address % 16) % 16 + shift;
  }
  char* data() { return bytes_.data() + first_; }
  std::size_t size() const { return nbytes_; }

 private:
  Bytes bytes_;
  std::size_t nbytes_, first_;
};

/// A list of copies between several arrays of each side.
struct Case {
  std::vector<DeviceCopy> copies;
  std::vector<Index> source_elements, target_elements;  // of each array
};

Case random_case(Random& random) {
  Case made;
  const Index arrays = random.one_in(40) ? 70 : random.between(1, 3);
  made.source_elements.assign(static_cast<std::size_t>(random.one_in(2) ? arrays : 1), 0);
  made.target_elements.assign(static_cast<std::size_t>(arrays), 0);
  const bool many = random.one_in(6);
  std::vector<Shape> shapes;
  for (Index i = random.between(1, 3); i > 0; --i)
    shapes.push_back(random_shape(random, many ? 100 : random.one_in(10) ? 60000 : 3000));
  const Index count = many ? random.between(100, 600) : random.between(1, 4);
  for (Index i = 0; i < count; ++i) {
    const Shape& shape = shapes[static_cast<std::size_t>(random.between(0, static_cast<Index>(shapes.size()) - 1))];
    DeviceCopy copy{shape.block, 0, 0};
    copy.source = static_cast<int>(random.between(0, static_cast<Index>(made.source_elements.size()) - 1));
    copy.target = static_cast<int>(random.between(0, arrays - 1));
    Index& source_end = made.source_elements[static_cast<std::size_t>(copy.source)];
    Index& target_end = made.target_elements[static_cast<std::size_t>(copy.target)];
    copy.block.source_offset = source_end + shape.source_before;
    copy.block.target_offset = target_end + shape.target_before;
    source_end += shape.source_extent + (random.one_in(10) ? 1 : 0);
    target_end += shape.target_extent + (random.one_in(10) ? 1 : 0);
    made.copies.push_back(copy);
  }
  return made;
}

/// Calls `visit(source, target)` with the elements of a block, in the order of its dimensions.
template <class Visit>
void for_each_element(const StridedBlock& block, const Visit& visit) {
  std::array<Index, max_block_dims> index{};
  const Index count = block.count();
  for (Index done = 0; done < count; ++done) {
    Index from = block.source_offset, to = block.target_offset;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) {
      from += index[d] * block.source_strides[d];
      to += index[d] * block.target_strides[d];
    }
    visit(from, to);
    for (auto d = static_cast<std::size_t>(block.ndim); d-- > 0;) {
      if (++index[d] < block.counts[d]) break;
      index[d] = 0;
    }
  }
}

struct Arrays {
  std::vector<Memory16> memory;
  std::vector<char*> addresses;

  template <class Fill>
  Arrays(Random& random, const std::vector<Index>& elements, Index element_bytes, Index least_shift, const Fill& fill) {
    for (const Index count : elements) {
      const Index shift = random.one_in(2) ? 0 : random.between(0, 15) / least_shift * least_shift;
      memory.emplace_back(static_cast<std::size_t>(std::max<Index>(1, count) * element_bytes),
                          static_cast<std::size_t>(shift));
      fill(memory.back());
    }
    for (Memory16& array : memory) addresses.push_back(array.data());
  }
  std::vector<const char*> sources() const { return {addresses.begin(), addresses.end()}; }
  std::vector<Bytes> contents() {
    std::vector<Bytes> result;
    for (Memory16& array : memory) result.emplace_back(array.data(), array.data() + array.size());
    return result;
  }
};

bool copies_like_a_loop(Random& random) {
  constexpr std::array<Index, 12> sizes{1, 2, 4, 8, 16, 4, 8, 16, 3, 12, 24, 96};
  const Case made = random_case(random);
  const Index element_bytes = sizes[static_cast<std::size_t>(random.between(0, 11))];
  HostCopyKernel kernel(made.copies, {element_bytes, element_bytes, nullptr});
  for (int launch = 0; launch < 3; ++launch) {
    const Index least_shift = Index{1} << random.between(0, 4);
    const auto fill = [&](Memory16& array) {
      for (std::size_t i = 0; i < array.size(); ++i) array.data()[i] = static_cast<char>(random.between(0, 255));
    };
    Arrays source(random, made.source_elements, element_bytes, least_shift, fill);
    Arrays target(random, made.target_elements, element_bytes, least_shift, fill);
    std::vector<Bytes> expected = target.contents();
    for (const DeviceCopy& copy : made.copies)
      for_each_element(copy.block, [&](Index from, Index to) {
        std::memcpy(expected[static_cast<std::size_t>(copy.target)].data() + to * element_bytes,
                    source.addresses[static_cast<std::size_t>(copy.source)] + from * element_bytes,
                    static_cast<std::size_t>(element_bytes));
      });
    kernel.launch(source.sources(), target.addresses, nullptr);
    if (target.contents() != expected) {
      std::printf("FAILED: elements of %lld bytes, %zu copies, launch %d\n", static_cast<long long>(element_bytes),
                  made.copies.size(), launch);
      return false;
    }
  }
  return true;
}

/// An operation that can be carried out: whole numbers so small that each type computes with them exactly.
ElementOperation random_operation(Random& random) {
  for (;;) {
    ElementOperation operation;
    const auto any_type = [&] {
      return static_cast<ElementType>(random.one_in(2) ? random.between(10, 13) : random.between(1, 13));
    };
    operation.source = any_type();
    operation.target = any_type();
    operation.reduction = static_cast<Reduction>(random.one_in(2) ? 0 : random.between(1, 4));
    if (random.one_in(2)) operation.alpha = {static_cast<double>(random.between(0, 3)), 0};
    if (random.one_in(2)) operation.beta = {static_cast<double>(random.between(0, 2)), 0};
    if (operation.target >= ElementType::complex64 && random.one_in(2)) operation.alpha += std::complex<double>{0, 2};
    operation.conjugate = random.one_in(3);
    try {
      const ElementKernel kernel(operation);
    } catch (const Error&) {
      continue;
    }
    if (!operation.is_copy()) return operation;
  }
}

void fill_with_numbers(Random& random, Memory16& array, ElementType type) {
  visit_element_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i + sizeof(T) <= array.size(); i += sizeof(T)) {
      T value(static_cast<T>(random.between(0, 5)));
      if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
        value.imag(static_cast<typename T::value_type>(random.between(-3, 3)));
      std::memcpy(array.data() + i, &value, sizeof value);
    }
  });
}

bool computes_like_element_kernel(Random& random) {
  const Case made = random_case(random);
  const ElementOperation operation = random_operation(random);
  const Index source_bytes = element_bytes_of(operation.source), target_bytes = element_bytes_of(operation.target);
  const ElementKernel elements(operation);
  HostCopyKernel kernel(made.copies, {source_bytes, target_bytes, &elements});
  for (int launch = 0; launch < 2; ++launch) {
    const Index least_shift = random.one_in(2) ? 16 : Index{1} << random.between(0, 3);
    Arrays source(random, made.source_elements, source_bytes, least_shift,
                  [&](Memory16& array) { fill_with_numbers(random, array, operation.source); });
    Arrays target(random, made.target_elements, target_bytes, least_shift,
                  [&](Memory16& array) { fill_with_numbers(random, array, operation.target); });
    std::vector<Bytes> expected = target.contents();
    for (const DeviceCopy& copy : made.copies)
      elements.apply(make_element_block(copy.block, source_bytes, target_bytes),
                     source.addresses[static_cast<std::size_t>(copy.source)],
                     expected[static_cast<std::size_t>(copy.target)].data());
    kernel.launch(source.sources(), target.addresses, nullptr);
    if (target.contents() != expected) {
      std::printf("FAILED: %s to %s, reduction %s, alpha %g, beta %g, %zu copies\n",
                  element_type_names[static_cast<std::size_t>(operation.source)],
                  element_type_names[static_cast<std::size_t>(operation.target)],
                  reduction_names[static_cast<std::size_t>(operation.reduction)], operation.alpha.real(),
                  operation.beta.real(), made.copies.size());
      return false;
    }
  }
  return true;
}

/// Every conversion and operation, both straight and transposed.
bool computes_with_all_types() {
  Random random(5);
  for (Index from = 1; from < element_type_count; ++from)
    for (Index to = 1; to < element_type_count; ++to)
      for (Index reduction = 0; reduction < reduction_count; ++reduction) {
        ElementOperation operation;
        operation.source = static_cast<ElementType>(from);
        operation.target = static_cast<ElementType>(to);
        operation.reduction = static_cast<Reduction>(reduction);
        if (reduction == 0 && to > 1) operation.beta = 2;
        ElementKernel elements;
        try {
          elements = ElementKernel(operation);
        } catch (const Error&) {
          continue;
        }
        DeviceCopy copy;
        copy.block.ndim = 2;
        copy.block.counts = {35, 33};
        copy.block.source_strides = {33, 1};
        copy.block.target_strides =
            reduction % 2 == 0 ? std::array<Index, max_block_dims>{1, 35} : std::array<Index, max_block_dims>{33, 1};
        const Index source_bytes = element_bytes_of(operation.source),
                    target_bytes = element_bytes_of(operation.target);
        Memory16 source(static_cast<std::size_t>(35 * 33 * source_bytes), 0),
            target(static_cast<std::size_t>(35 * 33 * target_bytes), 0);
        fill_with_numbers(random, source, operation.source);
        fill_with_numbers(random, target, operation.target);
        Bytes expected(target.data(), target.data() + target.size());
        elements.apply(make_element_block(copy.block, source_bytes, target_bytes), source.data(), expected.data());
        HostCopyKernel({copy}, {source_bytes, target_bytes, &elements})
            .launch({source.data()}, {target.data()}, nullptr);
        if (!std::equal(expected.begin(), expected.end(), target.data())) {
          std::printf("FAILED: %s to %s, reduction %s\n", element_type_names[from], element_type_names[to],
                      reduction_names[reduction]);
          return false;
        }
      }
  return true;
}

bool divides() {
  Random random(3);
  for (int i = 0; i < 100000; ++i) {
    const auto number = static_cast<std::uint32_t>(random.between(0, (Index{1} << random.between(1, 31)) - 1));
    const auto divisor = static_cast<std::uint32_t>(random.between(1, Index{1} << random.between(0, 31)));
    if (Divisor(divisor).quotient(number) != number / divisor) return false;
    const auto long_number = static_cast<std::uint64_t>(random.between(0, (Index{1} << random.between(1, 62)) - 1));
    const auto long_divisor = static_cast<std::uint64_t>(random.between(1, Index{1} << random.between(0, 62)));
    if (LongDivisor(long_divisor).quotient(long_number) != long_number / long_divisor) return false;
  }
  return true;
}

/// Dimensions longer than an index of 32 bits, strides longer than 32 bits: only where words lie, nothing is copied.
bool finds_words_of_huge_blocks() {
  StridedBlock block;
  block.ndim = 3;
  block.counts = {5, (Index{1} << 32) + 7, 3};
  block.source_strides = {Index{1} << 36, 4, 1};
  block.target_strides = {Index{1} << 37, 8, -2};
  const CopyTiles tiles({{block, 0, 0}}, {8, 8, nullptr}, {16}, {16});
  std::uint64_t words = 0;
  for (const TileGroup& group : tiles.groups) words += group.steps;
  if (words != static_cast<std::uint64_t>(block.count())) return false;
  TileLaunch tables;
  tables.groups = tiles.groups.data();
  tables.dimensions = tiles.dimensions.data();
  tables.places = tiles.places.data();
  tables.group_of_tile = tiles.group_of_tile.data();
  Random random(7);
  for (const TilePart& part : tiles.parts) {
    const TileLaunch launch = tile_launch(tiles, part, tables, {nullptr}, {nullptr});
    for (int i = 0; i < 2000; ++i) {
      const auto tile = static_cast<std::uint32_t>(random.between(0, part.tiles - 1));
      TileStart start{};
      for (std::uint32_t thread = 0; thread < tile_threads; ++thread) start_tile(launch, tile, thread, start);
      const std::uint32_t steps[1] = {static_cast<std::uint32_t>(random.between(0, start.steps - 1))};
      TileAddresses at[1];
      detail::locate(launch, launch.groups[start.group], start, steps, at);
      // which element that is, from its address in the source
      const auto source = static_cast<Index>(at[0].source) / 8;
      const Index outer = source >> 36, middle = (source & ((Index{1} << 36) - 1)) / 4, inner = source % 4;
      if (outer >= 5 || middle >= block.counts[1] || inner >= 3 ||
          static_cast<Index>(at[0].target) / 8 != outer * (Index{1} << 37) + middle * 8 - inner * 2)
        return false;
    }
  }
  return true;
}

bool check(bool good, const char* what) {
  if (!good) std::printf("FAILED: %s\n", what);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const long lists = argc > 1 ? std::atol(argv[1]) : 3000;
  Random random(argc > 2 ? static_cast<unsigned>(std::atol(argv[2])) : 1);
  if (!check(divides(), "Divisor, LongDivisor") || !check(finds_words_of_huge_blocks(), "words of huge blocks") ||
      !check(computes_with_all_types(), "all types"))
    return 1;
  for (long list = 0; list < lists; ++list)
    if (!copies_like_a_loop(random) || !computes_like_element_kernel(random)) {
      std::printf("list %ld\n", list);
      return 1;
    }
  std::printf("%ld lists passed\n", lists);
  return 0;
}
