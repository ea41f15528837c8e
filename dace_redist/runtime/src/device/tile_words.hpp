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

/// Words that a thread loads before it stores them: enough bytes in flight to hide the latency of memory, and few
/// enough registers for 1024 threads on a multiprocessor.
template <class Word>
inline constexpr std::uint32_t words_in_flight = sizeof(Word) >= 8 ? 4 : 6;

/// Copies words.
template <class Word>
class CopyWords {
 public:
  using Source = Word;
  using Target = Word;
  static constexpr std::uint32_t per_thread = words_in_flight<Word>;
  DACE_REDIST_HOST_DEVICE explicit CopyWords(const OperationValues&) {}

  DACE_REDIST_HOST_DEVICE std::int32_t source_bytes() const { return sizeof(Word); }
  DACE_REDIST_HOST_DEVICE std::int32_t target_bytes() const { return sizeof(Word); }
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return false; }
  DACE_REDIST_HOST_DEVICE Source load(const char* from) const { return load_word<Word>(from); }
  DACE_REDIST_HOST_DEVICE Target load_target(const char* from) const { return load_word<Word>(from); }
  DACE_REDIST_HOST_DEVICE Target compute(Source value, Target) const { return value; }
  DACE_REDIST_HOST_DEVICE void store(char* to, Target value) const { store_word(to, value); }
};

/// Computes with elements.
template <class From, class To>
class ElementWords {
 public:
  using Source = From;
  using Target = To;
  static constexpr std::uint32_t per_thread = words_in_flight<From>;
  DACE_REDIST_HOST_DEVICE explicit ElementWords(const OperationValues& values) : combination_(values) {}

  DACE_REDIST_HOST_DEVICE std::int32_t source_bytes() const { return sizeof(From); }
  DACE_REDIST_HOST_DEVICE std::int32_t target_bytes() const { return sizeof(To); }
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return combination_.reads_target(); }
  DACE_REDIST_HOST_DEVICE Source load(const char* from) const { return load_word<From>(from); }
  DACE_REDIST_HOST_DEVICE Target load_target(const char* from) const { return load_word<To>(from); }
  DACE_REDIST_HOST_DEVICE Target compute(Source value, Target current) const {
    return combination_(converted<To>(value), current);
  }
  DACE_REDIST_HOST_DEVICE void store(char* to, Target value) const { store_word(to, value); }

 private:
  Combination<To> combination_;
};

/// The other precision of a real or complex type; void for other types.
template <class T>
struct OtherPrecision {
  using type = void;
};
template <>
struct OtherPrecision<float> {
  using type = double;
};
template <>
struct OtherPrecision<double> {
  using type = float;
};
template <class T>
struct OtherPrecision<Complex<T>> {
  using type = Complex<typename OtherPrecision<T>::type>;
};

/// The words that a kernel moves: bytes that are copied, or elements of OperationValues::source and target.
enum class TileWords : std::int64_t { bytes1, bytes2, bytes4, bytes8, bytes16, elements };

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls `visit` with the TypeTag of ElementWords; does nothing without a kernel, see device_computes().
template <class Visit>
void visit_element_words(const OperationValues& operation, const Visit& visit) {
  visit_element_type(operation.source, [&](auto zero) {
    using From = Arithmetic<decltype(zero)>;
    using Other = typename OtherPrecision<From>::type;
    if (operation.source == operation.target) return visit(TypeTag<ElementWords<From, From>>());
    if constexpr (!std::is_void_v<Other>) visit(TypeTag<ElementWords<From, Other>>());
  });
}

/// Calls `visit` with the TypeTag of CopyWords or ElementWords.
template <class Visit>
void visit_tile_words(TileWords words, const OperationValues& operation, const Visit& visit) {
  switch (words) {
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
      return visit_element_words(operation, visit);
  }
}

}  // namespace dace_redist
