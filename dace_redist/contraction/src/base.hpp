// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Numbers, errors and element types of contractions.

#include <complex>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace dace_redist::contraction {

using Index = std::int64_t;

/// a / b rounded up, for a >= 0 and b > 0.
constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0); }

inline constexpr Index cache_line_bytes = 64;

/// Bytes of a vector register of the processor that is compiled for. Of operations on longer vectors, compilers make
/// operations on their elements.
#if defined(__AVX512F__)
inline constexpr Index vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr Index vector_bytes = 32;
#else
inline constexpr Index vector_bytes = 16;
#endif

/// Throws an error whose text is made of the arguments, as `operator<<` prints them.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw std::invalid_argument(out.str());
}

/// Calls `visit(T())` with a value of the floating-point type of that name, as in NumPy. \throws an error that begins
/// with `reason` if there is none.
template <class Visit>
decltype(auto) visit_inexact(const std::string& name, const char* reason, const Visit& visit) {
  if (name == "float32") return visit(float());
  if (name == "float64") return visit(double());
  if (name == "complex64") return visit(std::complex<float>());
  if (name == "complex128") return visit(std::complex<double>());
  fail(reason, name);
}

/// The same for all types of numbers: sums of products of signed and of unsigned integers have the same bits, as both
/// are modulo a power of two.
template <class Visit>
decltype(auto) visit_number(const std::string& name, const Visit& visit) {
  if (name == "int8" || name == "uint8") return visit(std::uint8_t());
  if (name == "int16" || name == "uint16") return visit(std::uint16_t());
  if (name == "int32" || name == "uint32") return visit(std::uint32_t());
  if (name == "int64" || name == "uint64") return visit(std::uint64_t());
  return visit_inexact(name, "cannot contract elements of type ", visit);
}

}  // namespace dace_redist::contraction
