// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The vector registers of the processor that is compiled for.

#include <cstdint>

namespace dace_redist {

/// Bytes of a vector register. Of operations on longer vectors, compilers make operations on their elements.
#if defined(__AVX512F__)
inline constexpr std::int64_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::int64_t vector_bytes = 32;
#else
inline constexpr std::int64_t vector_bytes = 16;
#endif

}  // namespace dace_redist
