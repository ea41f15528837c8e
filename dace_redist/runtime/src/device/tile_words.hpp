// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The words of tile kernels, which are loaded, computed with and stored. Start reading at: TileWords.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "copy/element_arithmetic.hpp"
#include "core/error.hpp"

namespace dace_redist {

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

/// The computation with a word of a launch. \tparam Source, Target  types of Arithmetic.
template <class From, class To>
struct TileWords {
  using Source = From;
  using Target = To;
  DACE_REDIST_HOST_DEVICE explicit TileWords(const ElementOperation& operation) : combination(operation) {}
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

template <class From, class Visit>
void visit_target_words(ElementType target, const Visit& visit) {
  visit_element_type(target, [&](auto zero) {
    using To = Arithmetic<decltype(zero)>;
    constexpr ElementKind from = detail::kind_of<From>, to = detail::kind_of<To>;
    if constexpr (std::is_same_v<From, To> || (from == to && from >= ElementKind::real))
      visit(TypeTag<TileWords<From, To>>());
  });
}

/// Calls `visit` with the TypeTag of TileWords; does nothing without a kernel, see device_computes().
template <class Visit>
void visit_tile_words(const ElementOperation& operation, const Visit& visit) {
  visit_element_type(operation.source,
                     [&](auto zero) { visit_target_words<Arithmetic<decltype(zero)>>(operation.target, visit); });
}

}  // namespace dace_redist
