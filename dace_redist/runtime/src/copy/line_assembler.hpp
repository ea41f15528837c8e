// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Stores of whole cache lines, put together in registers from runs that follow each other in the target: with
/// non-temporal stores, reading and writing overlap as they do in memcpy. Needs AVX-512; without, fills_lines() is
/// false.

#include <cstdint>

#include "copy/copy_kernels.hpp"

namespace dace_redist::detail {

/// True if write_lines() takes runs of this length: a line holds parts of two at most.
constexpr bool fills_lines([[maybe_unused]] std::int64_t run_bytes) {
#if defined(__AVX512BW__)
  return run_bytes >= line_bytes;
#else
  return false;
#endif
}

/// A position in runs of one length.
struct RunReader {
  const char* source;           ///< of the next byte, `left` bytes before the end of its run; `left` may be negative
  std::int64_t left;            ///< -run_bytes to run_bytes
  std::int64_t run_bytes, gap;  ///< bytes of a run, and between two runs

#if defined(__AVX512BW__)
  /// The `wanted` bytes of the next line, the others zeros.
  __m512i part(__mmask64 wanted) const {
    const __mmask64 first = left >= line_bytes ? wanted : wanted & ones(left);
    return _mm512_mask_loadu_epi8(_mm512_maskz_loadu_epi8(first, source), wanted & ~first, source + gap);
  }
#endif
  /// The lowest `count` bits, 0 to 63.
  static std::uint64_t ones(std::int64_t count) { return (std::uint64_t{1} << count) - 1; }
  void skip_gap() {
    source += gap;
    left += run_bytes;
  }
};

/// Writes `nbytes` bytes, nothing if negative; `target` is aligned to a line.
///
/// The loop over lines loads nothing but source data: measured, three further loads per line cost 10 % of bandwidth,
/// six 25 %.
/// \param ahead  Prefetch distance in the source, in bytes.
template <bool non_temporal>
void write_lines([[maybe_unused]] RunReader reader, [[maybe_unused]] char* target, [[maybe_unused]] std::int64_t nbytes,
                 [[maybe_unused]] std::int64_t ahead) {
#if defined(__AVX512BW__)
  if (reader.left < 0) reader.skip_gap();
#pragma GCC unroll 4
  for (; nbytes >= line_bytes; nbytes -= line_bytes, target += line_bytes) {
    if (reader.left == 0) reader.skip_gap();  // else the gap would be prefetched
    prefetch_line(address_at(reader.source, ahead));
    __m512i line;
    if (reader.left >= line_bytes) {
      line = _mm512_loadu_si512(reader.source);
    } else {
      line = reader.part(~__mmask64{0});
      reader.skip_gap();
      if constexpr (non_temporal)  // the next line may begin behind the first source line of the run
        prefetch_line(address_at(reader.source + reader.left - reader.run_bytes, ahead));
    }
    if constexpr (non_temporal)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target), line);
    else
      _mm512_store_si512(target, line);
    reader.source += line_bytes;
    reader.left -= line_bytes;
  }
  if (nbytes > 0) _mm512_mask_storeu_epi8(target, RunReader::ones(nbytes), reader.part(RunReader::ones(nbytes)));
#endif
}

}  // namespace dace_redist::detail
