// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The unit of memory that caches move, and rounding to it.

#include <cstdint>

namespace dace_redist {

/// Bytes of a cache line. Data of different writers lie in different lines.
inline constexpr std::int64_t cache_line_bytes = 64;

/// The next multiple of `unit` from `number` on, both at least 0.
constexpr std::int64_t round_up(std::int64_t number, std::int64_t unit) { return (number + unit - 1) / unit * unit; }

/// `nbytes` rounded up to whole cache lines.
constexpr std::int64_t whole_lines(std::int64_t nbytes) { return round_up(nbytes, cache_line_bytes); }

}  // namespace dace_redist
