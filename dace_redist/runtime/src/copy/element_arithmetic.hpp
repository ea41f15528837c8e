// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The arithmetic of one element, for a processor and a GPU: conversion, factors, reductions.
/// Start reading at: converted() and Combination.

#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "copy/device_function.hpp"
#include "copy/element_operation.hpp"
#include "core/element_type.hpp"

namespace dace_redist {

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

namespace detail {

/// 1 for infinite numbers, else 0, with the sign of the number.
template <class T>
DACE_REDIST_HOST_DEVICE T boxed(T value) {
  return std::copysign(std::isinf(value) ? T(1) : T(0), value);
}

/// The product of numbers with an infinite part, where the formula gives NaN (ISO C, Annex G.5.1).
template <class T>
DACE_REDIST_HOST_DEVICE Complex<T> infinite_product(Complex<T> a, Complex<T> b, Complex<T> product) {
  const auto numbers = [](Complex<T>& value) {  // signed zeros in place of NaN
    if (std::isnan(value.re)) value.re = std::copysign(T(0), value.re);
    if (std::isnan(value.im)) value.im = std::copysign(T(0), value.im);
  };
  const auto infinite = [](T value) { return std::isinf(value); };
  bool recovered = false;
  if (infinite(a.re) || infinite(a.im)) {
    a = Complex<T>(boxed(a.re), boxed(a.im));
    numbers(b);
    recovered = true;
  }
  if (infinite(b.re) || infinite(b.im)) {
    b = Complex<T>(boxed(b.re), boxed(b.im));
    numbers(a);
    recovered = true;
  }
  if (!recovered &&
      (infinite(a.re * b.re) || infinite(a.im * b.im) || infinite(a.re * b.im) || infinite(a.im * b.re))) {
    numbers(a);
    numbers(b);
    recovered = true;
  }
  if (!recovered) return product;
  const T infinity = static_cast<T>(HUGE_VAL);
  return Complex<T>(infinity * (a.re * b.re - a.im * b.im), infinity * (a.re * b.im + a.im * b.re));
}

}  // namespace detail

/// As std::complex multiplies.
template <class T>
DACE_REDIST_HOST_DEVICE Complex<T> operator*(Complex<T> a, Complex<T> b) {
  const Complex<T> product(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
  if (std::isnan(product.re) && std::isnan(product.im)) return detail::infinite_product(a, b, product);
  return product;
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
    return converted<To>(value.value);
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

/// A factor in the type of an element, which can represent it: see ElementKernel.
template <class T>
DACE_REDIST_HOST_DEVICE T factor(Complex<double> value) {
  if constexpr (is_complex<T>)
    return converted<T>(value);
  else
    return static_cast<T>(value.re);
}

/// A number for sums and products. Integers wrap around, as in NumPy: they become unsigned, at least of int's size.
template <class T>
DACE_REDIST_HOST_DEVICE constexpr decltype(auto) wrapping(const T& value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<std::common_type_t<std::make_unsigned_t<T>, unsigned>>(value);
  else
    return (value);  // by reference: of copies of complex numbers compilers make other code
}

/// An ElementOperation in a form that a GPU reads.
struct OperationValues {
  ElementType source = ElementType::opaque, target = ElementType::opaque;
  Complex<double> alpha{1}, beta{0};
  bool conjugate = false, scales = false;
  Reduction reduction = Reduction::none;

  OperationValues() = default;
  explicit OperationValues(const ElementOperation& operation)
      : source(operation.source),
        target(operation.target),
        alpha(operation.alpha.real(), operation.alpha.imag()),
        beta(operation.beta.real(), operation.beta.imag()),
        conjugate(operation.conjugate),
        scales(operation.alpha != 1.0 || operation.conjugate ||
               (operation.beta != 0.0 && operation.reduction == Reduction::none)),
        reduction(operation.reduction) {}
};

/// Combines a converted element and the current one of the target.
/// \tparam known_reduction  The reduction if it is known at compile time, as loops need it to be vectorised; else -1.
template <class T, int known_reduction = -1>
class Combination {
 public:
  DACE_REDIST_HOST_DEVICE explicit Combination(const OperationValues& values)
      : reduction_(known_reduction < 0 ? values.reduction : static_cast<Reduction>(known_reduction)),
        scales_(values.scales),
        conjugates_(is_complex<T> && values.conjugate),
        adds_(reduction_ == Reduction::none && values.beta != Complex<double>(0)) {
    if constexpr (!std::is_same_v<T, Boolean>) {
      alpha_ = factor<T>(values.alpha);
      beta_ = factor<T>(values.beta);
    }
  }

  DACE_REDIST_HOST_DEVICE bool reads_target() const { return adds_ || reduction() != Reduction::none; }

  DACE_REDIST_HOST_DEVICE T operator()(T incoming, T current) const {
    if constexpr (std::is_same_v<T, Boolean>) {
      return reduced(incoming, current);
    } else {
      if (scales_) {
        if (conjugates_) incoming = conjugated(incoming);
        incoming = static_cast<T>(wrapping(alpha_) * wrapping(incoming));
      }
      if (adds_) return static_cast<T>(wrapping(incoming) + wrapping(beta_) * wrapping(current));
      return reduced(incoming, current);
    }
  }

 private:
  DACE_REDIST_HOST_DEVICE constexpr Reduction reduction() const {
    return known_reduction < 0 ? reduction_ : static_cast<Reduction>(known_reduction);
  }

  DACE_REDIST_HOST_DEVICE T reduced(T incoming, T current) const {
    if (reduction() == Reduction::none) return incoming;
    if constexpr (std::is_same_v<T, Boolean>) {
      const bool joins = reduction() == Reduction::sum || reduction() == Reduction::max;
      incoming.value =
          static_cast<std::uint8_t>(joins ? incoming.value | current.value : incoming.value & current.value);
      return incoming;
    } else {
      if (reduction() == Reduction::sum) return static_cast<T>(wrapping(incoming) + wrapping(current));
      if (reduction() == Reduction::prod) return static_cast<T>(wrapping(incoming) * wrapping(current));
      if constexpr (!is_complex<T>) {  // as numpy.minimum and maximum: NaN wins
        const bool first = reduction() == Reduction::min ? incoming < current : incoming > current;
        return first || incoming != incoming ? incoming : current;
      } else {
        return incoming;
      }
    }
  }

  T alpha_, beta_;
  Reduction reduction_;
  bool scales_, conjugates_, adds_;
};

}  // namespace dace_redist
