// SPDX-License-Identifier: BSD-3-Clause
// Random lists of copies as a device makes them, and their outcome by a loop over elements and by ElementKernel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "copy/copy_block.hpp"
#include "copy/element_operation.hpp"
#include "device/device.hpp"
#include "random_box.hpp"

namespace {

using namespace dace_redist;
using Bytes = std::vector<char>;
using Index = std::int64_t;

bool check(bool good, const char* what) {
  if (!good) std::printf("FAILED: %s\n", what);
  return good;
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

/// Makes copies between arrays in main memory, by whatever means.
class Copier {
 public:
  explicit Copier(TileRunner& device) : device_(device) {}
  virtual ~Copier() = default;
  std::unique_ptr<CopyKernel> prepare(const std::vector<DeviceCopy>& copies, const ElementStep& step) {
    return std::make_unique<CopyKernel>(device_, copies, step);
  }
  /// \param sources, targets  arrays whose addresses have the alignment that the kernel is to see.
  virtual void launch(CopyKernel& kernel, std::vector<Memory16>& sources, std::vector<Memory16>& targets) = 0;

 private:
  TileRunner& device_;
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
  std::vector<Box> boxes;
  for (Index i = random.between(1, 3); i > 0; --i)
    boxes.push_back(random_box(random, {6, many ? 100 : random.one_in(10) ? 60000 : 3000, 300, 6, true}));
  const Index count = many ? random.between(100, 600) : random.between(1, 4);
  for (Index i = 0; i < count; ++i) {
    const Box box = random.one_of(boxes);
    DeviceCopy copy{box.block, 0, 0};
    copy.source = static_cast<int>(random.between(0, static_cast<Index>(made.source_elements.size()) - 1));
    copy.target = static_cast<int>(random.between(0, arrays - 1));
    Index& source_end = made.source_elements[static_cast<std::size_t>(copy.source)];
    Index& target_end = made.target_elements[static_cast<std::size_t>(copy.target)];
    copy.block.source_offset = source_end + box.source_before;
    copy.block.target_offset = target_end + box.target_before;
    source_end += box.source_extent + (random.one_in(10) ? 1 : 0);
    target_end += box.target_extent + (random.one_in(10) ? 1 : 0);
    made.copies.push_back(copy);
  }
  return made;
}

struct Arrays {
  std::vector<Memory16> memory;
  std::vector<char*> addresses;

  template <class Fill>
  Arrays(Random& random, const std::vector<Index>& elements, Index element_bytes, Index min_shift, const Fill& fill) {
    for (const Index count : elements) {
      const Index shift = random.one_in(2) ? 0 : random.between(0, 15) / min_shift * min_shift;
      memory.emplace_back(static_cast<std::size_t>(std::max<Index>(1, count) * element_bytes),
                          static_cast<std::size_t>(shift));
      fill(memory.back());
    }
    for (Memory16& array : memory) addresses.push_back(array.data());
  }
  std::vector<Bytes> contents() {
    std::vector<Bytes> result;
    for (Memory16& array : memory) result.emplace_back(array.data(), array.data() + array.size());
    return result;
  }
};

bool copies_like_a_loop(Random& random, Copier& copier) {
  constexpr std::array<Index, 12> sizes{1, 2, 4, 8, 16, 4, 8, 16, 3, 12, 24, 96};
  const Case made = random_case(random);
  const Index element_bytes = sizes[static_cast<std::size_t>(random.between(0, 11))];
  const auto kernel = copier.prepare(made.copies, {element_bytes, element_bytes, nullptr});
  for (int launch = 0; launch < 3; ++launch) {
    const Index min_shift = Index{1} << random.between(0, 4);
    const auto fill = [&](Memory16& array) {
      for (std::size_t i = 0; i < array.size(); ++i) array.data()[i] = static_cast<char>(random.between(0, 255));
    };
    Arrays source(random, made.source_elements, element_bytes, min_shift, fill);
    Arrays target(random, made.target_elements, element_bytes, min_shift, fill);
    std::vector<Bytes> expected = target.contents();
    for (const DeviceCopy& copy : made.copies)
      for_each_element(copy.block, [&](Index from, Index to) {
        std::memcpy(expected[static_cast<std::size_t>(copy.target)].data() + to * element_bytes,
                    source.addresses[static_cast<std::size_t>(copy.source)] + from * element_bytes,
                    static_cast<std::size_t>(element_bytes));
      });
    copier.launch(*kernel, source.memory, target.memory);
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
    operation.target = random.one_in(2) ? operation.source : any_type();
    if (!device_computes(operation.source, operation.target)) continue;
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

bool computes_like_element_kernel(Random& random, Copier& copier) {
  const Case made = random_case(random);
  const ElementOperation operation = random_operation(random);
  const Index source_bytes = element_bytes_of(operation.source), target_bytes = element_bytes_of(operation.target);
  const ElementKernel elements(operation);
  const auto kernel = copier.prepare(made.copies, {source_bytes, target_bytes, &elements});
  for (int launch = 0; launch < 2; ++launch) {
    Arrays source(random, made.source_elements, source_bytes, source_bytes,
                  [&](Memory16& array) { fill_with_numbers(random, array, operation.source); });
    Arrays target(random, made.target_elements, target_bytes, target_bytes,
                  [&](Memory16& array) { fill_with_numbers(random, array, operation.target); });
    std::vector<Bytes> expected = target.contents();
    for (const DeviceCopy& copy : made.copies)
      elements.apply(make_element_block(copy.block, source_bytes, target_bytes),
                     source.addresses[static_cast<std::size_t>(copy.source)],
                     expected[static_cast<std::size_t>(copy.target)].data(), random.one_in(2));
    copier.launch(*kernel, source.memory, target.memory);
    if (target.contents() != expected) {
      std::printf("FAILED: %s to %s, reduction %s, alpha %g, beta %g, %zu copies\n", element_name(operation.source),
                  element_name(operation.target), reduction_names[static_cast<std::size_t>(operation.reduction)],
                  operation.alpha.real(), operation.beta.real(), made.copies.size());
      return false;
    }
  }
  return true;
}

/// Every operation and conversion that a device makes, both straight and transposed.
bool computes_with_all_types(Copier& copier) {
  Random random(5);
  for (Index from = 1; from < element_type_count; ++from)
    for (Index to = 1; to < element_type_count; ++to)
      for (Index reduction = 0; reduction < reduction_count; ++reduction) {
        ElementOperation operation;
        operation.source = static_cast<ElementType>(from);
        operation.target = static_cast<ElementType>(to);
        operation.reduction = static_cast<Reduction>(reduction);
        if (reduction == 0 && to > 1) operation.beta = 2;
        if (!device_computes(operation.source, operation.target)) continue;
        ElementKernel elements;
        try {
          elements = ElementKernel(operation);
        } catch (const Error&) {
          continue;
        }
        DeviceCopy copy{{2, 0, 0, {35, 33}, {33, 1}, {33, 1}}, 0, 0};
        if (reduction % 2 == 0) copy.block.target_strides = {1, 35};
        const Index source_bytes = element_bytes_of(operation.source),
                    target_bytes = element_bytes_of(operation.target);
        std::vector<Memory16> source, target;
        source.emplace_back(static_cast<std::size_t>(35 * 33 * source_bytes), std::size_t{0});
        target.emplace_back(static_cast<std::size_t>(35 * 33 * target_bytes), std::size_t{0});
        fill_with_numbers(random, source[0], operation.source);
        fill_with_numbers(random, target[0], operation.target);
        Bytes expected(target[0].data(), target[0].data() + target[0].size());
        elements.apply(make_element_block(copy.block, source_bytes, target_bytes), source[0].data(), expected.data(),
                       random.one_in(2));
        copier.launch(*copier.prepare({copy}, {source_bytes, target_bytes, &elements}), source, target);
        if (!std::equal(expected.begin(), expected.end(), target[0].data())) {
          std::printf("FAILED: %s to %s, reduction %s\n", element_types[from].name, element_types[to].name,
                      reduction_names[reduction]);
          return false;
        }
      }
  return true;
}

/// All of the above, `lists` times with new lists.
bool passes_all_cases(Copier& copier, long lists, unsigned seed) {
  Random random(seed);
  if (!computes_with_all_types(copier)) return false;
  for (long list = 0; list < lists; ++list)
    if (!copies_like_a_loop(random, copier) || !computes_like_element_kernel(random, copier)) {
      std::printf("list %ld of seed %u\n", list, seed);
      return false;
    }
  std::printf("%ld lists passed\n", lists);
  return true;
}

}  // namespace
