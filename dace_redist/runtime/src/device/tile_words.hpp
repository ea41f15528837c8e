// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The words of tile kernels, which are loaded, computed with and stored: 1 to 16 bytes that are copied, or elements.
/// Start reading at: CopyWords.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "copy/element_arithmetic.hpp"
#include "core/error.hpp"
#include "device/tile_tables.hpp"

namespace dace_redist {

/// 16 bytes, which a GPU reads and writes at once.
struct alignas(16) Word16 {
  std::uint64_t low, high;
};

/// Tells the compiler that an address is of neither shared nor local memory: loads and stores then have the
/// instructions of global memory, and accesses to shared memory may move past them.
template <class Address>
DACE_REDIST_HOST_DEVICE Address* in_device_memory(Address* address) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

/// Loads a word from an address that is aligned to its size.
template <class T>
DACE_REDIST_HOST_DEVICE T load_word(const char* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const T*>(from);
#else
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) != 0) throw Error("a tile kernel loads a misaligned word");
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
#endif
}

/// Stores a word at an address that is aligned to its size.
template <class T>
DACE_REDIST_HOST_DEVICE void store_word(char* to, const T& value) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<T*>(to) = value;
#else
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) != 0) throw Error("a tile kernel stores a misaligned word");
  std::memcpy(to, &value, sizeof value);
#endif
}

/// Copies words. \tparam Word  an unsigned integer, or Word16.
template <class Word>
struct CopyWords {
  using Source = Word;
  using Target = Word;
  DACE_REDIST_HOST_DEVICE explicit CopyWords(const OperationValues&) {}
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return false; }
  DACE_REDIST_HOST_DEVICE Word operator()(Word value, Word) const { return value; }
};

/// Computes with elements.
template <class From, class To>
struct ElementWords {
  using Source = From;
  using Target = To;
  DACE_REDIST_HOST_DEVICE explicit ElementWords(const OperationValues& values) : combination(values) {}
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return combination.reads_target(); }
  DACE_REDIST_HOST_DEVICE To operator()(From value, To current) const {
    return combination(converted<To>(value), current);
  }
  Combination<To> combination;
};

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls `visit` with the TypeTag of ElementWords; does nothing without a kernel, see device_computes().
template <class From, class Visit>
void visit_element_words(ElementType target, const Visit& visit) {
  visit_element_type(target, [&](auto zero) {
    using To = Arithmetic<decltype(zero)>;
    constexpr ElementKind from = detail::kind_of<From>, to = detail::kind_of<To>;
    if constexpr (std::is_same_v<From, To> || (from == to && from >= ElementKind::real))
      visit(TypeTag<ElementWords<From, To>>());
  });
}

/// Calls `visit` with the TypeTag of CopyWords or ElementWords.
template <class Visit>
void visit_tile_words(const TileLaunch& launch, const Visit& visit) {
  switch (launch.words) {
    case TileWords::bytes1:
      return visit(TypeTag<CopyWords<std::uint8_t>>());
    case TileWords::bytes2:
      return visit(TypeTag<CopyWords<std::uint16_t>>());
    case TileWords::bytes4:
      return visit(TypeTag<CopyWords<std::uint32_t>>());
    case TileWords::bytes8:
      return visit(TypeTag<CopyWords<std::uint64_t>>());
    case TileWords::bytes16:
      return visit(TypeTag<CopyWords<Word16>>());
    case TileWords::elements:
      return visit_element_type(launch.operation.source, [&](auto zero) {
        visit_element_words<Arithmetic<decltype(zero)>>(launch.operation.target, visit);
      });
  }
}

}  // namespace dace_redist
