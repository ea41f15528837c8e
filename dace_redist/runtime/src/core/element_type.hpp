// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The list of the element types that the library computes with; the public headers number them alike.

#include <complex>
#include <cstdint>

#include "core/error.hpp"
#include "core/half.hpp"

namespace dace_redist {

/// A boolean as NumPy stores it: its sum is "or", its product "and".
struct Boolean {
  Boolean() = default;
  template <class T>
  explicit constexpr Boolean(T number) : value(number != T(0)) {}
  explicit constexpr operator bool() const { return value != 0; }
  std::uint8_t value;
};

/// Kinds of NumPy's casting rule "same_kind", in the order in which they convert.
enum class ElementKind : std::int64_t { opaque, boolean, integer, real, complex };

/// Expands `X(enumerator, name as in NumPy, C++ type, kind)` for every type. The order is the public
/// numbering.
#define DACE_REDIST_ELEMENT_TYPES(X)                         \
  X(boolean, "bool", Boolean, boolean)                       \
  X(int8, "int8", std::int8_t, integer)                      \
  X(int16, "int16", std::int16_t, integer)                   \
  X(int32, "int32", std::int32_t, integer)                   \
  X(int64, "int64", std::int64_t, integer)                   \
  X(uint8, "uint8", std::uint8_t, integer)                   \
  X(uint16, "uint16", std::uint16_t, integer)                \
  X(uint32, "uint32", std::uint32_t, integer)                \
  X(uint64, "uint64", std::uint64_t, integer)                \
  X(float32, "float32", float, real)                         \
  X(float64, "float64", double, real)                        \
  X(complex64, "complex64", std::complex<float>, complex)    \
  X(complex128, "complex128", std::complex<double>, complex) \
  X(float16, "float16", Float16, real)                       \
  X(bfloat16, "bfloat16", BFloat16, real)

/// Type of an element; `opaque` elements of any size are copied, but not computed with.
enum class ElementType : std::int64_t {
  opaque,
#define DACE_REDIST_ENUMERATOR(enumerator, name, type, kind) enumerator,
  DACE_REDIST_ELEMENT_TYPES(DACE_REDIST_ENUMERATOR)
#undef DACE_REDIST_ENUMERATOR
};

/// Entry of the table of element types.
struct ElementTypeInfo {
  const char* name;     ///< as in NumPy
  std::int64_t nbytes;  ///< 0: opaque
  ElementKind kind;
};

/// Indexed by ElementType.
inline constexpr ElementTypeInfo element_types[] = {{"opaque", 0, ElementKind::opaque},
#define DACE_REDIST_INFO(enumerator, name, type, kind) {name, sizeof(type), ElementKind::kind},
                                                    DACE_REDIST_ELEMENT_TYPES(DACE_REDIST_INFO)
#undef DACE_REDIST_INFO
};

inline constexpr std::int64_t element_type_count = sizeof element_types / sizeof *element_types;

/// Alignment of all types: the parts of a message begin at multiples of it.
inline constexpr std::int64_t element_alignment = 16;

constexpr const ElementTypeInfo& element_info(ElementType type) {
  return element_types[static_cast<std::size_t>(type)];
}

/// Name as in NumPy.
constexpr const char* element_name(ElementType type) { return element_info(type).name; }

[[noreturn]] inline void fail_to_compute_with_opaque() {
  throw Error(
      "opaque elements can only be copied: conversion, alpha, beta, conj and op need a numeric or boolean type");
}

/// Bytes of an element. \throws Error if it is opaque.
constexpr std::int64_t element_bytes_of(ElementType type) {
  if (type == ElementType::opaque) fail_to_compute_with_opaque();
  return element_info(type).nbytes;
}

/// Calls `visit(T())` with a value of the type. \throws Error if it is opaque.
template <class Visit>
decltype(auto) visit_element_type(ElementType type, const Visit& visit) {
  switch (type) {
#define DACE_REDIST_VISIT(enumerator, name, Type, kind) \
  case ElementType::enumerator:                         \
    return visit(Type());
    DACE_REDIST_ELEMENT_TYPES(DACE_REDIST_VISIT)
#undef DACE_REDIST_VISIT
    case ElementType::opaque:
      break;
  }
  fail_to_compute_with_opaque();
}

}  // namespace dace_redist
