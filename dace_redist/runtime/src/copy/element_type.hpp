// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The element types that the library computes with: converts, scales, adds.

#include <complex>
#include <cstdint>
#include <string>

#include "copy/device_function.hpp"
#include "core/error.hpp"

namespace dace_redist {

/// Type of an element; `opaque` elements are moved, whatever they are, but not computed with.
enum class ElementType : std::int64_t {
  opaque,
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float32,
  float64,
  complex64,
  complex128
};

inline constexpr std::int64_t element_type_count = 14;

/// Bytes, of all types: where a message has parts, each begins at a multiple.
inline constexpr std::int64_t element_alignment = 16;

/// Names as in NumPy, in the order of ElementType.
inline constexpr const char* element_type_names[element_type_count] = {
    "opaque", "bool",   "int8",   "int16",   "int32",   "int64",     "uint8",
    "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128"};

/// A boolean as NumPy stores it, whose sum is "or" and whose product is "and".
struct Boolean {
  Boolean() = default;
  template <class T>
  DACE_REDIST_HOST_DEVICE explicit constexpr Boolean(T number) : value(number != T(0)) {}
  DACE_REDIST_HOST_DEVICE explicit constexpr operator bool() const { return value != 0; }
  std::uint8_t value;
};

/// Calls `visit(T())` with a value of the type. \throws Error if it is opaque or unknown.
template <class Visit>
decltype(auto) visit_element_type(ElementType type, const Visit& visit) {
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
      return visit(std::complex<float>());
    case ElementType::complex128:
      return visit(std::complex<double>());
    case ElementType::opaque:
      break;
  }
  throw Error("elements of this type are only moved: a conversion, alpha, beta, conj or op needs numbers or booleans");
}

}  // namespace dace_redist
