// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The arithmetic of one element, for a processor and a GPU: conversion, factors, reductions.
/// Start reading at: converted() and Combination.

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "copy/element_operation.hpp"
#include "core/element_type.hpp"

namespace dace_redist {

/// The element at an address, which need not be aligned.
template <class T>
T load_element(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store_element(char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// A complex number with the layout of std::complex, whose operators do not run on a GPU.
template <class T>
struct alignas(2 * sizeof(T)) Complex {
  using value_type = T;
  Complex() = default;
  DACE_REDIST_HOST_DEVICE explicit constexpr Complex(T real, T imaginary = 0) : re(real), im(imaginary) {}
  T re, im;
};

template <class T>
DACE_REDIST_HOST_DEVICE constexpr Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return Complex<T>(a.re + b.re, a.im + b.im);
}

template <class T>
DACE_REDIST_HOST_DEVICE constexpr bool operator!=(Complex<T> a, Complex<T> b) {
  return a.re != b.re || a.im != b.im;
}

/// As NumPy multiplies: without the search for infinities that C++ prescribes.
template <class T>
DACE_REDIST_HOST_DEVICE constexpr Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return Complex<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<Complex<T>> = true;

namespace detail {

template <class T>
struct ArithmeticType {
  using type = T;
};
template <class T>
struct ArithmeticType<std::complex<T>> {
  using type = Complex<T>;
};

template <class T>
inline constexpr ElementKind kind_of = std::is_same_v<T, Boolean> ? ElementKind::boolean
                                       : std::is_integral_v<T>    ? ElementKind::integer
                                       : is_complex<T>            ? ElementKind::complex
                                                                  : ElementKind::real;

}  // namespace detail

/// Type of an element in computations.
template <class T>
using Arithmetic = typename detail::ArithmeticType<T>::type;

/// True if one type converts to another by NumPy's rule "same_kind": never from complex to real numbers, from real
/// numbers to integers, or from integers to booleans; integers may be cut off.
template <class From, class To>
DACE_REDIST_HOST_DEVICE constexpr bool converts() {
  return detail::kind_of<From> <= detail::kind_of<To>;
}

/// Converts an element to a type for which converts() is true.
template <class To, class From>
DACE_REDIST_HOST_DEVICE To converted(From value) {
  if constexpr (std::is_same_v<To, Boolean>) {
    value.value = value.value != 0;
    return value;
  } else if constexpr (std::is_same_v<From, Boolean>)
    return converted<To>(static_cast<std::uint8_t>(value.value != 0));  // views of bytes hold others than 0 and 1
  else if constexpr (is_complex<To> && is_complex<From>)
    return To(static_cast<typename To::value_type>(value.re), static_cast<typename To::value_type>(value.im));
  else if constexpr (is_complex<To>)
    return To(static_cast<typename To::value_type>(value));
  else
    return static_cast<To>(value);
}

/// The complex conjugate; real numbers are returned as they are.
template <class T>
DACE_REDIST_HOST_DEVICE T conjugated(T value) {
  if constexpr (is_complex<T>)
    return T(value.re, -value.im);
  else
    return value;
}

/// A factor of an operation, read as an array of its two parts: the functions of std::complex do not run on a GPU.
DACE_REDIST_HOST_DEVICE inline Complex<double> parts_of(const std::complex<double>& factor) {
  const auto& parts = reinterpret_cast<const double(&)[2]>(factor);
  return Complex<double>(parts[0], parts[1]);
}

/// A factor in the type of an element, which can represent it: see ElementKernel.
template <class T>
DACE_REDIST_HOST_DEVICE T factor(const std::complex<double>& value) {
  if constexpr (is_complex<T>)
    return converted<T>(parts_of(value));
  else
    return static_cast<T>(parts_of(value).re);
}

/// A number for sums and products. Integers wrap around, as in NumPy: they become unsigned, at least of int's size.
template <class T>
DACE_REDIST_HOST_DEVICE constexpr decltype(auto) wrapping(const T& value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<std::common_type_t<std::make_unsigned_t<T>, unsigned>>(value);
  else
    return (value);  // by reference: of copies of complex numbers compilers make other code
}

/// The reduction of two elements; the incoming one without any.
template <class T>
DACE_REDIST_HOST_DEVICE T reduced(Reduction reduction, T incoming, T current) {
  if (reduction == Reduction::none) return incoming;
  if constexpr (std::is_same_v<T, Boolean>) {
    const bool joins = reduction == Reduction::sum || reduction == Reduction::max;
    const bool first = incoming.value != 0, second = current.value != 0;
    incoming.value = joins ? first | second : first & second;
    return incoming;
  } else {
    if (reduction == Reduction::sum) return static_cast<T>(wrapping(incoming) + wrapping(current));
    if (reduction == Reduction::prod) return static_cast<T>(wrapping(incoming) * wrapping(current));
    if constexpr (!is_complex<T>) {  // as numpy.minimum and maximum: NaN wins
      const bool first = reduction == Reduction::min ? incoming < current : incoming > current;
      return first || incoming != incoming ? incoming : current;
    } else {
      return incoming;
    }
  }
}

/// Combines a converted element and the current one of the target.
/// \tparam known_reduction  The reduction if it is known at compile time, as loops need it to be vectorised; else -1.
template <class T, int known_reduction = -1>
class Combination {
 public:
  DACE_REDIST_HOST_DEVICE explicit Combination(const ElementOperation& operation)
      : reduction_(known_reduction < 0 ? operation.reduction : static_cast<Reduction>(known_reduction)),
        conjugates_(is_complex<T> && operation.conjugate),
        adds_(reduction_ == Reduction::none && parts_of(operation.beta) != Complex<double>(0)),
        scales_(multiplies(operation.alpha)),
        weighs_(adds_ && multiplies(operation.beta)) {
    if constexpr (!std::is_same_v<T, Boolean>) {
      alpha_ = factor<T>(operation.alpha);
      beta_ = factor<T>(operation.beta);
    }
  }

  DACE_REDIST_HOST_DEVICE bool reads_target() const { return adds_ || reduction() != Reduction::none; }

  DACE_REDIST_HOST_DEVICE T operator()(T incoming, T current) const {
    if constexpr (std::is_same_v<T, Boolean>) {
      return reduced(reduction(), incoming, current);
    } else {
      if (conjugates_) incoming = conjugated(incoming);
      if (scales_) incoming = static_cast<T>(wrapping(alpha_) * wrapping(incoming));
      if (weighs_) return static_cast<T>(wrapping(incoming) + wrapping(beta_) * wrapping(current));
      if (adds_) return static_cast<T>(wrapping(incoming) + wrapping(current));
      return reduced(reduction(), incoming, current);
    }
  }

 private:
  /// A factor of 1 is left out where it makes NaN of infinities: in products of complex numbers.
  DACE_REDIST_HOST_DEVICE bool multiplies(const std::complex<double>& factor) const {
    return (adds_ && !is_complex<T>) || parts_of(factor) != Complex<double>(1);
  }

  DACE_REDIST_HOST_DEVICE constexpr Reduction reduction() const {
    return known_reduction < 0 ? reduction_ : static_cast<Reduction>(known_reduction);
  }

  T alpha_, beta_;
  Reduction reduction_;
  bool conjugates_, adds_, scales_, weighs_;
};

}  // namespace dace_redist
