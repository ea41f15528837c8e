// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How words are read, computed with and written by tile kernels: copied by 1 to 16 bytes, or as elements of a type.
/// Start reading at: CopyWords.

#include <cstdint>
#include <cstring>

#include "copy/element_arithmetic.hpp"
#include "core/error.hpp"

namespace dace_redist {

/// 16 bytes, which a GPU reads and writes at once.
struct alignas(16) Word16 {
  std::uint64_t low, high;
};

/// The same address, which the compiler now knows to be of neither shared nor a thread's own memory: so it makes other
/// instructions, and moves accesses to shared memory past them.
template <class Address>
DACE_REDIST_HOST_DEVICE Address* in_device_memory(Address* address) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

/// Reads what is aligned to its size.
template <class T>
DACE_REDIST_HOST_DEVICE T load_word(const char* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const T*>(from);
#else
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) != 0) throw Error("a tile kernel reads a misaligned word");
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
#endif
}

/// Writes what is aligned to its size.
template <class T>
DACE_REDIST_HOST_DEVICE void store_word(char* to, const T& value) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<T*>(to) = value;
#else
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) != 0) throw Error("a tile kernel writes a misaligned word");
  std::memcpy(to, &value, sizeof value);
#endif
}

/// Words that a thread reads before it writes them: enough bytes on their way to hide the time of an access, and few
/// enough registers for 1024 threads on a multiprocessor.
template <class Word>
inline constexpr std::uint32_t words_on_their_way = sizeof(Word) >= 8 ? 4 : 6;

/// Copies words.
template <class Word>
class CopyWords {
 public:
  using Source = Word;
  using Target = Word;
  static constexpr std::uint32_t per_thread = words_on_their_way<Word>;
  DACE_REDIST_HOST_DEVICE explicit CopyWords(const OperationValues&) {}

  DACE_REDIST_HOST_DEVICE std::int32_t source_bytes() const { return sizeof(Word); }
  DACE_REDIST_HOST_DEVICE std::int32_t target_bytes() const { return sizeof(Word); }
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return false; }
  DACE_REDIST_HOST_DEVICE Source load(const char* from) const { return load_word<Word>(from); }
  DACE_REDIST_HOST_DEVICE Target load_target(const char* from) const { return load_word<Word>(from); }
  DACE_REDIST_HOST_DEVICE Target compute(Source value, Target) const { return value; }
  DACE_REDIST_HOST_DEVICE void store(char* to, Target value) const { store_word(to, value); }
};

/// Computes with elements of types that are known when this is compiled.
template <class From, class To>
class ElementWords {
 public:
  using Source = From;
  using Target = To;
  static constexpr std::uint32_t per_thread = words_on_their_way<From>;
  DACE_REDIST_HOST_DEVICE explicit ElementWords(const OperationValues& values) : combination_(values) {}

  DACE_REDIST_HOST_DEVICE std::int32_t source_bytes() const { return sizeof(From); }
  DACE_REDIST_HOST_DEVICE std::int32_t target_bytes() const { return sizeof(To); }
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return combination_.reads_target(); }
  DACE_REDIST_HOST_DEVICE Source load(const char* from) const { return load_word<From>(from); }
  DACE_REDIST_HOST_DEVICE Target load_target(const char* from) const { return load_word<To>(from); }
  DACE_REDIST_HOST_DEVICE Target compute(Source value, Target there) const {
    return combination_(converted<To>(value), there);
  }
  DACE_REDIST_HOST_DEVICE void store(char* to, Target value) const { store_word(to, value); }

 private:
  Combination<To> combination_;
};

namespace detail {

/// The first bytes of a word as a value of a type, and the other way round.
template <class T>
DACE_REDIST_HOST_DEVICE T value_of(const Word16& word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
template <class T>
DACE_REDIST_HOST_DEVICE Word16 word_of(T value) {
  Word16 word{0, 0};
  std::memcpy(&word, &value, sizeof value);
  return word;
}

/// visit_element_type() for a GPU, which throws nothing; elements that are only moved do not come here.
template <class Visit>
DACE_REDIST_HOST_DEVICE auto visit_arithmetic_type(ElementType type, const Visit& visit) {
  switch (type) {
    case ElementType::boolean:
      return visit(Boolean());
    case ElementType::int8:
      return visit(std::int8_t());
    case ElementType::int16:
      return visit(std::int16_t());
    case ElementType::int32:
      return visit(std::int32_t());
    case ElementType::int64:
      return visit(std::int64_t());
    case ElementType::uint8:
      return visit(std::uint8_t());
    case ElementType::uint16:
      return visit(std::uint16_t());
    case ElementType::uint32:
      return visit(std::uint32_t());
    case ElementType::uint64:
      return visit(std::uint64_t());
    case ElementType::float32:
      return visit(float());
    case ElementType::float64:
      return visit(double());
    case ElementType::complex64:
      return visit(Complex<float>());
    case ElementType::complex128:
    case ElementType::opaque:
      break;
  }
  return visit(Complex<double>());
}

DACE_REDIST_HOST_DEVICE inline std::int32_t bytes_of(ElementType type) {
  return visit_arithmetic_type(type, [](auto zero) { return static_cast<std::int32_t>(sizeof zero); });
}

}  // namespace detail

/// Computes with elements of any types, which are told apart at run time, and of any alignment.
class AnyElementWords {
 public:
  using Source = Word16;
  using Target = Word16;
  static constexpr std::uint32_t per_thread = 2;  // each is a piece of code for all types
  DACE_REDIST_HOST_DEVICE explicit AnyElementWords(const OperationValues& values)
      : values_(values),
        source_bytes_(detail::bytes_of(values.source)),
        target_bytes_(detail::bytes_of(values.target)) {}

  DACE_REDIST_HOST_DEVICE std::int32_t source_bytes() const { return source_bytes_; }
  DACE_REDIST_HOST_DEVICE std::int32_t target_bytes() const { return target_bytes_; }
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return Combination<Boolean>(values_).reads_target(); }
  DACE_REDIST_HOST_DEVICE Source load(const char* from) const { return load_bytes(from, source_bytes_); }
  DACE_REDIST_HOST_DEVICE Target load_target(const char* from) const { return load_bytes(from, target_bytes_); }
  DACE_REDIST_HOST_DEVICE void store(char* to, const Target& value) const { store_bytes(to, value, target_bytes_); }

  /// Widens the element to the largest type of its kind, which holds it exactly, then converts it to the target's.
  DACE_REDIST_HOST_DEVICE Target compute(const Source& word, const Target& there) const {
    switch (values_.source) {
      case ElementType::boolean:
        return combined(detail::value_of<Boolean>(word), there);
      case ElementType::int8:
        return combined(std::int64_t{detail::value_of<std::int8_t>(word)}, there);
      case ElementType::int16:
        return combined(std::int64_t{detail::value_of<std::int16_t>(word)}, there);
      case ElementType::int32:
        return combined(std::int64_t{detail::value_of<std::int32_t>(word)}, there);
      case ElementType::int64:
        return combined(detail::value_of<std::int64_t>(word), there);
      case ElementType::float32:
        return combined(double{detail::value_of<float>(word)}, there);
      case ElementType::float64:
        return combined(detail::value_of<double>(word), there);
      case ElementType::complex64:
        return combined(converted<Complex<double>>(detail::value_of<Complex<float>>(word)), there);
      case ElementType::complex128:
        return combined(detail::value_of<Complex<double>>(word), there);
      case ElementType::uint8:
      case ElementType::uint16:
      case ElementType::uint32:
      case ElementType::uint64:
      case ElementType::opaque:
        break;
    }
    return combined(word.low, there);  // unsigned; the bytes that were not read are 0
  }

 private:
  DACE_REDIST_HOST_DEVICE static bool aligned(const char* address, std::int32_t nbytes) {
    return (reinterpret_cast<std::uintptr_t>(address) & static_cast<std::uintptr_t>(nbytes - 1)) == 0;
  }

  DACE_REDIST_HOST_DEVICE static Word16 load_bytes(const char* from, std::int32_t nbytes) {
    Word16 word{0, 0};
    if (!aligned(from, nbytes)) {
      for (std::int32_t at = 0; at < nbytes; ++at) {
        const std::uint64_t byte = static_cast<unsigned char>(from[at]);
        (at < 8 ? word.low : word.high) |= byte << (8 * (at % 8));
      }
      return word;
    }
    switch (nbytes) {
      case 1:
        word.low = load_word<std::uint8_t>(from);
        break;
      case 2:
        word.low = load_word<std::uint16_t>(from);
        break;
      case 4:
        word.low = load_word<std::uint32_t>(from);
        break;
      case 8:
        word.low = load_word<std::uint64_t>(from);
        break;
      default:
        word = load_word<Word16>(from);
    }
    return word;
  }

  DACE_REDIST_HOST_DEVICE static void store_bytes(char* to, const Word16& word, std::int32_t nbytes) {
    if (!aligned(to, nbytes)) {
      for (std::int32_t at = 0; at < nbytes; ++at)
        to[at] = static_cast<char>((at < 8 ? word.low : word.high) >> (8 * (at % 8)));
      return;
    }
    switch (nbytes) {
      case 1:
        return store_word(to, static_cast<std::uint8_t>(word.low));
      case 2:
        return store_word(to, static_cast<std::uint16_t>(word.low));
      case 4:
        return store_word(to, static_cast<std::uint32_t>(word.low));
      case 8:
        return store_word(to, word.low);
      default:
        return store_word(to, word);
    }
  }

  template <class From>
  DACE_REDIST_HOST_DEVICE Target combined(From value, const Target& there) const {
    return detail::visit_arithmetic_type(values_.target, [&](auto zero) {
      using To = decltype(zero);
      if constexpr (converts<From, To>())
        return detail::word_of(Combination<To>(values_)(converted<To>(value), detail::value_of<To>(there)));
      else
        return there;  // ElementKernel has refused it
    });
  }

  OperationValues values_;
  std::int32_t source_bytes_, target_bytes_;
};

}  // namespace dace_redist
