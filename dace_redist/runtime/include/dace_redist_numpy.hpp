// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Elementwise functions of generated programs where C++ differs from NumPy: `numpy_NAME` has the values of
/// `numpy.NAME`, special values included, for operands of the type in which NumPy computes.

#include <math.h>  // NOLINT(modernize-deprecated-headers): sqrt(float) is a float

#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#ifdef __CUDACC__
#define NUMPY_INLINE __host__ __device__ inline
#else
#define NUMPY_INLINE inline
#endif
#define NUMPY_FUNCTION                  \
  template <typename T, typename U = T> \
  NUMPY_INLINE

template <typename T, typename = void>
inline constexpr bool numpy_is_complex = false;
template <typename T>
inline constexpr bool numpy_is_complex<T, std::void_t<typename T::value_type>> = true;

// Ends the program with a message

template <typename... Values>
NUMPY_INLINE void numpy_end(const char* message, Values... values) {
  printf(message, values...);
#ifdef __CUDA_ARCH__
  __trap();
#else
  std::fflush(stdout);
  std::abort();
#endif
}

// Index of an element of an axis; a negative one counts from the end

NUMPY_FUNCTION std::int64_t numpy_index(T index, std::int64_t length) {
  const auto place = static_cast<std::int64_t>(index) + (index < T(0) ? length : 0);
  if (place < 0 || place >= length)
    numpy_end("IndexError: index %lld is out of bounds for an axis of %lld elements\n", static_cast<long long>(index),
              static_cast<long long>(length));
  return place;
}

// Ends the program if a box has elements before the first one of an axis or after the last

inline void numpy_check_box(std::int64_t begin, std::int64_t extent, std::int64_t length, const char* statement) {
  if (begin >= 0 && extent >= 0 && begin + extent <= length) return;
  numpy_end(
      "IndexError: %s: it takes elements %lld to %lld of %lld; indices from the end, and slices that end beyond the "
      "array, must be computed from sizes and loops alone; in place of a condition with `and`, write an if in an if\n",
      statement, static_cast<long long>(begin), static_cast<long long>(begin + extent), static_cast<long long>(length));
}

// Comparisons: of integers with and without a sign, and of complex numbers by their real parts, then by the others

NUMPY_FUNCTION bool numpy_less(T a, U b) {
  if constexpr (numpy_is_complex<T>)
    return (a.real() < b.real() && a.imag() == a.imag() && b.imag() == b.imag()) ||
           (a.real() == b.real() && a.imag() < b.imag());
  else if constexpr (std::is_signed_v<T> == std::is_signed_v<U>)
    return a < b;
  else if constexpr (std::is_signed_v<T>)
    return a < 0 || static_cast<std::uint64_t>(a) < b;
  else
    return b > 0 && a < static_cast<std::uint64_t>(b);
}
NUMPY_FUNCTION bool numpy_equal(T a, U b) {
  if constexpr (std::is_floating_point_v<T> || std::is_floating_point_v<U>)
    return a == b;
  else
    return !numpy_less(a, b) && !numpy_less(b, a);
}
NUMPY_FUNCTION bool numpy_not_equal(T a, U b) { return !numpy_equal(a, b); }
NUMPY_FUNCTION bool numpy_less_equal(T a, U b) {
  if constexpr (numpy_is_complex<T>)
    return numpy_less(a, b) || a == b;
  else
    return !numpy_less(b, a);
}
NUMPY_FUNCTION bool numpy_greater(T a, U b) { return numpy_less(b, a); }
NUMPY_FUNCTION bool numpy_greater_equal(T a, U b) { return numpy_less_equal(b, a); }

NUMPY_FUNCTION T numpy_maximum(T a, T b) {  // not a number if an operand is not
  if constexpr (numpy_is_complex<T>)
    return a != a || numpy_less_equal(b, a) ? a : b;
  else
    return a != a || a > b ? a : b;
}
NUMPY_FUNCTION T numpy_minimum(T a, T b) {
  if constexpr (numpy_is_complex<T>)
    return a != a || numpy_less_equal(a, b) ? a : b;
  else
    return a != a || a < b ? a : b;
}
NUMPY_FUNCTION T numpy_clip(T a, T low, T high) {
  if constexpr (numpy_is_complex<T>) {  // bounds whose imaginary part is not a number have an order here
    const auto less = [](T x, T y) { return x.real() == y.real() ? x.imag() < y.imag() : x.real() < y.real(); };
    const T raised = a != a || less(low, a) ? a : low;
    return raised != raised || less(raised, high) ? raised : high;
  } else {
    return numpy_minimum(numpy_maximum(a, low), high);
  }
}
NUMPY_FUNCTION T numpy_fmax(T a, T b) { return b != b ? a : a != a ? b : numpy_maximum(a, b); }
NUMPY_FUNCTION T numpy_fmin(T a, T b) { return b != b ? a : a != a ? b : numpy_minimum(a, b); }

// Integers: results wrap, and a quotient by 0 is 0

NUMPY_FUNCTION T numpy_negative(T a) { return static_cast<T>(-static_cast<std::uint64_t>(a)); }
NUMPY_FUNCTION T numpy_left_shift(T a, T b) {
  return static_cast<std::uint64_t>(b) < 8 * sizeof(T) ? static_cast<T>(static_cast<std::uint64_t>(a) << b) : T(0);
}
NUMPY_FUNCTION T numpy_right_shift(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(b) < 8 * sizeof(T) ? a >> b : a < 0 ? -1 : 0);
}
NUMPY_FUNCTION T numpy_fmod(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)) ? T(0) : static_cast<T>(a % b);
  else
    return fmod(a, b);
}
NUMPY_FUNCTION T numpy_remainder(T a, T b) {
  const T rest = numpy_fmod(a, b);
  if (rest == 0 && b != 0) return std::is_integral_v<T> ? rest : static_cast<T>(copysign(T(0), b));
  return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
}
NUMPY_FUNCTION T numpy_floor_divide(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return numpy_negative(a);
    return static_cast<T>(a / b - (a % b != 0 && (a < 0) != (b < 0)));
  } else {
    if (b == 0) return a / b;
    const T rest = fmod(a, b), quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0)),
            whole = floor(quotient);
    return quotient == 0 ? copysign(T(0), a / b) : whole + (quotient - whole > T(0.5));
  }
}

// Complex numbers, without the C standard's recovery of infinities

NUMPY_FUNCTION T numpy_multiply(T a, T b) {
  return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
}
NUMPY_FUNCTION T numpy_divide(T a, T b) {  // Smith's algorithm
  const auto real = fabs(b.real()), imag = fabs(b.imag());
  if (real == 0 && imag == 0) return T(a.real() / real, a.imag() / real);
  if (real >= imag) {
    const auto ratio = b.imag() / b.real(), scale = 1 / (b.real() + b.imag() * ratio);
    return T((a.real() + a.imag() * ratio) * scale, (a.imag() - a.real() * ratio) * scale);
  }
  const auto ratio = b.real() / b.imag(), scale = 1 / (b.imag() + b.real() * ratio);
  return T((a.real() * ratio + a.imag()) * scale, (a.imag() * ratio - a.real()) * scale);
}
NUMPY_FUNCTION T numpy_sign(T a) {
  if constexpr (numpy_is_complex<T>) {
    const auto length = hypot(a.real(), a.imag());
    if (length != INFINITY) return length == 0 ? T(0) : T(a.real() / length, a.imag() / length);
    const T one(fabs(a.real()) == length ? copysign(1, a.real()) : 0,
                fabs(a.imag()) == length ? copysign(1, a.imag()) : 0);
    return one.real() != 0 && one.imag() != 0 ? T(NAN, NAN) : one;
  } else {
    return a != a ? a : static_cast<T>((a > 0) - (a < 0));
  }
}

/// Powers: of integers modulo their range; of complex numbers with small whole exponents by multiplications.
NUMPY_FUNCTION T numpy_power(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t base = static_cast<std::uint64_t>(a), power = 1;
    for (std::uint64_t rest = static_cast<std::uint64_t>(b); rest != 0; rest >>= 1, base *= base)
      if (rest & 1) power *= base;
    return static_cast<T>(power);
  } else if constexpr (numpy_is_complex<T>) {
    const auto exponent = b.real();
    if (b == T(0)) return T(1);
    if (a == T(0)) return exponent > 0 ? T(0) : T(0 / fabs(a.real()), 0 / fabs(a.real()));
    if (b == T(1)) return a;
    if (b == T(2) || b == T(3)) return numpy_multiply(b == T(2) ? T(a) : numpy_multiply(a, a), a);
    if (b.imag() != 0 || !(fabs(exponent) < 100) || exponent != floor(exponent)) return pow(a, b);
    T power = T(1);
    for (int rest = static_cast<int>(fabs(exponent)); rest != 0; rest >>= 1, a = numpy_multiply(a, a))
      if (rest & 1) power = numpy_multiply(power, a);
    return exponent < 0 ? numpy_divide(T(1), power) : power;
  } else {
    return pow(a, b);
  }
}
/// Power of an element of an array, whose exponent is a scalar.
NUMPY_FUNCTION T numpy_scalar_power(T a, T b) {
  if (b == T(0.5)) return T(sqrt(a));
  if constexpr (numpy_is_complex<T>) {
    if (b == T(-1)) {  // by a reciprocal, Smith's algorithm
      const bool real = fabs(a.imag()) <= fabs(a.real());
      const auto ratio = real ? a.imag() / a.real() : a.real() / a.imag();
      const auto scale = real ? a.real() + a.imag() * ratio : a.real() * ratio + a.imag();
      return real ? T(1 / scale, -ratio / scale) : T(ratio / scale, -1 / scale);
    }
  }
  return numpy_power(a, b);
}

// Of two types: DaCe drops casts of numbers in expressions of symbols

#define NUMPY_OF_TYPES(name)                                                            \
  template <typename T, typename U, typename = std::enable_if_t<!std::is_same_v<T, U>>> \
  inline auto name(T a, U b) {                                                          \
    using Common = std::common_type_t<T, U>;                                            \
    return name(static_cast<Common>(a), static_cast<Common>(b));                        \
  }
NUMPY_OF_TYPES(numpy_floor_divide)
NUMPY_OF_TYPES(numpy_remainder)
NUMPY_OF_TYPES(numpy_fmod)
NUMPY_OF_TYPES(numpy_power)
NUMPY_OF_TYPES(numpy_scalar_power)
NUMPY_OF_TYPES(numpy_maximum)
NUMPY_OF_TYPES(numpy_minimum)
NUMPY_OF_TYPES(numpy_left_shift)
NUMPY_OF_TYPES(numpy_right_shift)
#undef NUMPY_OF_TYPES
#undef NUMPY_FUNCTION
#undef NUMPY_INLINE
