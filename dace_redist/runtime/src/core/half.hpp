// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Floating-point numbers of 16 bits, rounded to the nearest, ties to even. They are computed with as float.

#include <cstdint>
#include <cstring>
#include <type_traits>

/// Marks what runs on a processor and on a GPU.
#ifdef __CUDACC__
#define DACE_REDIST_HOST_DEVICE __host__ __device__
#else
#define DACE_REDIST_HOST_DEVICE
#endif

namespace dace_redist {
namespace detail {

DACE_REDIST_HOST_DEVICE inline std::uint32_t bits_of(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

DACE_REDIST_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

/// A float that rounds to any shorter type as the number does: the one next to it towards zero, with its last bit set
/// if it is another number ("round to odd"; S. Boldo and G. Melquiond, IEEE Transactions on Computers 57, 2008).
DACE_REDIST_HOST_DEVICE inline float rounded_to_odd(double number) {
  const auto nearest = static_cast<float>(number);
  const auto magnitude = [](double one) { return one < 0 ? -one : one; };
  const std::uint32_t beyond = magnitude(nearest) > magnitude(number);
  const std::uint32_t inexact = nearest != number;
  return float_of((bits_of(nearest) - beyond) | inexact);
}

inline constexpr std::uint32_t magnitude_bits = 0x7fffffff, infinity_bits = 0x7f800000;

}  // namespace detail

/// Bits of a float16 of IEEE 754: 5 of the exponent, 10 of the fraction.
struct Float16Format {
  DACE_REDIST_HOST_DEVICE static std::uint32_t magnitude(std::uint32_t bits) {
    constexpr std::uint32_t first_infinite = 0x477ff000, first_normal = 0x38800000, lost = 13, bias = 112u << 23;
    if (bits > detail::infinity_bits) return 0x7e00;
    if (bits >= first_infinite) return 0x7c00;
    // a sum with 0.5 is rounded to multiples of the smallest float16
    if (bits < first_normal) return detail::bits_of(detail::float_of(bits) + 0.5f) - detail::bits_of(0.5f);
    return (bits - bias + 0xfff + (bits >> lost & 1)) >> lost;
  }
  DACE_REDIST_HOST_DEVICE static float number(std::uint32_t magnitude) {
    const float number = detail::float_of(magnitude << 13) * 0x1p112f;
    return number < 65536 ? number : detail::float_of(detail::bits_of(number) | detail::infinity_bits);
  }
};

/// Bits of a bfloat16: the upper half of a float.
struct BFloat16Format {
  DACE_REDIST_HOST_DEVICE static std::uint32_t magnitude(std::uint32_t bits) {
    if (bits > detail::infinity_bits) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  DACE_REDIST_HOST_DEVICE static float number(std::uint32_t magnitude) { return detail::float_of(magnitude << 16); }
};

/// A number of 16 bits in one of the formats.
template <class Format>
struct Half {
  std::uint16_t bits;

  Half() = default;
  template <class T>
  DACE_REDIST_HOST_DEVICE explicit Half(T number) {
    float rounded;
    if constexpr (std::is_same_v<T, float>)
      rounded = number;
    else
      rounded = detail::rounded_to_odd(static_cast<double>(number));
    const std::uint32_t given = detail::bits_of(rounded);
    bits = static_cast<std::uint16_t>(Format::magnitude(given & detail::magnitude_bits) | (given >> 16 & 0x8000));
  }
  DACE_REDIST_HOST_DEVICE operator float() const {  // NOLINT(google-explicit-constructor): every value is a float
    const float magnitude = Format::number(bits & 0x7fff);
    return bits & 0x8000 ? -magnitude : magnitude;
  }
};

using Float16 = Half<Float16Format>;
using BFloat16 = Half<BFloat16Format>;

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

}  // namespace dace_redist
