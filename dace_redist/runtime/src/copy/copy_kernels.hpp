// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The innermost loops of every copy: runs of bytes in a plane of two strided dimensions, and non-temporal stores.

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "core/machine.hpp"

namespace dace_redist::detail {

inline constexpr std::int64_t line_bytes = cache_line_bytes;  ///< the unit of a non-temporal store

/// True if the processor has non-temporal stores.
#if defined(__SSE2__)
inline constexpr bool can_stream = true;
#else
inline constexpr bool can_stream = false;
#endif

/// Two dimensions of runs; all strides and lengths in bytes.
struct Plane {
  std::int64_t rows, columns, run_bytes;
  std::int64_t source_row, source_column;  ///< strides of the source
  std::int64_t target_row, target_column;  ///< strides of the target
  std::int64_t ahead = 0;                  ///< prefetch distance in the source
};

/// Copies a run of exactly `Bytes` bytes.
template <std::size_t Bytes>
struct ExactRun {
  static void copy(const char* source, char* target, std::int64_t) { std::memcpy(target, source, Bytes); }
};

/// Copies a run of (Pieces - 1) * Width to Pieces * Width bytes in fixed pieces, the last one overlapping the others.
template <std::size_t Width, std::size_t Pieces>
struct OverlappingRun {
  static void copy(const char* source, char* target, std::int64_t run_bytes) {
    for (std::size_t piece = 0; piece + 1 < Pieces; ++piece)
      std::memcpy(target + piece * Width, source + piece * Width, Width);
    const std::size_t last = static_cast<std::size_t>(run_bytes) - Width;
    std::memcpy(target + last, source + last, Width);
  }
};

/// Copies less than 64 bytes in pieces that overlap. Of memcpy, GCC makes a string instruction where it knows that
/// bound.
struct ShortRun {
  static void copy(const char* source, char* target, std::int64_t run_bytes) {
    if (run_bytes >= 32)
      OverlappingRun<32, 2>::copy(source, target, run_bytes);
    else if (run_bytes >= 16)
      OverlappingRun<16, 2>::copy(source, target, run_bytes);
    else if (run_bytes >= 8)
      OverlappingRun<8, 2>::copy(source, target, run_bytes);
    else if (run_bytes >= 4)
      OverlappingRun<4, 2>::copy(source, target, run_bytes);
    else
      for (std::int64_t byte = 0; byte < run_bytes; ++byte) target[byte] = source[byte];
  }
};

/// Copies a run of any length.
struct LongRun {
  static void copy(const char* source, char* target, std::int64_t run_bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(run_bytes));
  }
};

/// Bytes of one non-temporal store; targets are aligned to them.
#if defined(__AVX__)
inline constexpr std::int64_t stream_width = 32;
#else
inline constexpr std::int64_t stream_width = 16;
#endif

/// Copies stream_width bytes to a multiple of stream_width, with a non-temporal store; without SSE2 with an ordinary
/// one.
inline void stream_aligned(const char* source, char* target) {
#if defined(__AVX__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(target), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(target), _mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
#else
  std::memcpy(target, source, static_cast<std::size_t>(stream_width));
#endif
}

/// Writes one cache line with non-temporal stores; `target` is aligned to a line.
inline void stream_line(const char* source, char* target) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(target), _mm512_loadu_si512(source));
#else
  for (std::int64_t byte = 0; byte < line_bytes; byte += stream_width) stream_aligned(source + byte, target + byte);
#endif
}

/// Orders the non-temporal stores before all later stores of this thread.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Bytes from `address` to the next line boundary, 0 to 63.
inline std::int64_t bytes_to_line(const char* address) {
  return static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(address) % line_bytes);
}

/// The line that an address lies in.
inline std::uintptr_t start_of_line(std::uintptr_t address) {
  return address - address % static_cast<std::uintptr_t>(line_bytes);
}

/// The address `offset` bytes from another, of the same array or not.
inline std::uintptr_t address_at(const char* start, std::int64_t offset) {
  return reinterpret_cast<std::uintptr_t>(start) + static_cast<std::uintptr_t>(offset);
}

/// Prefetches a cache line at any address, mapped or not, to the second-level cache: the first one holds the data being
/// copied. Always inlined, since GCC removes calls of functions that only prefetch.
[[gnu::always_inline]] inline void prefetch_line(std::uintptr_t address) {
  __builtin_prefetch(reinterpret_cast<const char*>(address), 0, 2);
}

/// Source lines to prefetch one by one between stores, in rows at equal distances: reading and writing then overlap.
class LinesAhead {
 public:
  LinesAhead() = default;
  /// \param first  Address of the first row; rows need not be mapped.
  LinesAhead(std::uintptr_t first, std::int64_t rows, std::int64_t row_stride, std::int64_t row_bytes)
      : row_(first), row_bytes_(static_cast<std::uintptr_t>(row_bytes)), rows_(rows), row_stride_(row_stride) {
    begin_row();
  }

  /// Prefetches one line, if any is left.
  [[gnu::always_inline]] void prefetch_next() {
    if (rows_ == 0) return;
    prefetch_line(line_);
    line_ += line_bytes;
    if (line_ < row_ + row_bytes_) return;
    row_ += static_cast<std::uintptr_t>(row_stride_);
    begin_row();
    --rows_;
  }

  /// Prefetches all lines that are left.
  [[gnu::always_inline]] void prefetch_all() {
    while (rows_ > 0) prefetch_next();
  }

 private:
  void begin_row() { line_ = start_of_line(row_); }

  std::uintptr_t line_ = 0, row_ = 0, row_bytes_ = 0;
  std::int64_t rows_ = 0, row_stride_ = 0;
};

/// Copies a run of any length; the whole cache lines of the target are written with non-temporal stores.
struct StreamRun {
  /// \param ahead  Prefetch distance in the source, in bytes; 0: nothing is prefetched.
  static void copy(const char* source, char* target, std::int64_t run_bytes, std::int64_t ahead = 0) {
    if (ahead == 0) return copy_lines(source, target, run_bytes, [](std::int64_t) {});
    copy_lines(source, target, run_bytes, [&](std::int64_t done) { prefetch_line(address_at(source + done, ahead)); });
    // a run that does not begin at a line of the source ends in one line more
    prefetch_line(address_at(source + run_bytes - 1, ahead));
  }

  /// \param lines  Lines to prefetch, `lines_at_once` with each line stored.
  static void copy(const char* source, char* target, std::int64_t run_bytes, LinesAhead& lines,
                   std::int64_t lines_at_once = 1) {
    copy_lines(source, target, run_bytes, [&](std::int64_t) {
      for (std::int64_t line = 0; line < lines_at_once; ++line) lines.prefetch_next();
    });
  }

 private:
  /// \param before_line  Called as `before_line(done)` before each line is stored, with the bytes done.
  template <class BeforeLine>
  static void copy_lines(const char* source, char* target, std::int64_t run_bytes, const BeforeLine& before_line) {
    const std::int64_t head = bytes_to_line(target);
    if (run_bytes < head + line_bytes)
      return run_bytes < line_bytes ? ShortRun::copy(source, target, run_bytes)
                                    : OverlappingRun<line_bytes, 2>::copy(source, target, run_bytes);
    ShortRun::copy(source, target, head);
    std::int64_t done = head;
    for (; done + line_bytes <= run_bytes; done += line_bytes) {
      before_line(done);
      stream_line(source + done, target + done);
    }
    ShortRun::copy(source + done, target + done, run_bytes - done);
  }
};

/// Copies a run of whole stream widths with non-temporal stores; `target` is aligned to stream_width.
struct AlignedStreamRun {
  static void copy(const char* source, char* target, std::int64_t run_bytes) {
    for (std::int64_t byte = 0; byte < run_bytes; byte += stream_width) stream_aligned(source + byte, target + byte);
  }
};

/// Prefetches the cache lines of a run that is copied later, at any address.
[[gnu::always_inline]] inline void prefetch_run(std::uintptr_t address, std::int64_t run_bytes) {
  const std::uintptr_t end = address + static_cast<std::uintptr_t>(run_bytes);
  for (std::uintptr_t line = start_of_line(address); line < end; line += line_bytes) prefetch_line(line);
}

/// Prefetches the cache lines at both ends of a run that is streamed later, where it shares them with other runs.
inline void prefetch_edges(const char* target, std::int64_t run_bytes) {
  if (bytes_to_line(target) > 0) __builtin_prefetch(target, 1);
  if (bytes_to_line(target + run_bytes) > 0) __builtin_prefetch(target + run_bytes, 1);
}

/// Prefetching of a copy: nothing, each run, each row (for short runs that are dense in the source), or, of streamed
/// runs, the source and the lines at the ends of the next run in the target.
enum class Prefetch { none, runs, rows, streamed };

/// The two loops around every run. The plane is taken by value: stores through `char*` cannot change its members.
template <class Run, Prefetch prefetch>
void copy_plane(Plane plane, const char* source, char* target) {
  for (std::int64_t row = 0; row < plane.rows; ++row) {
    const char* const first = source + row * plane.source_row;
    if constexpr (prefetch == Prefetch::rows)
      if (plane.ahead != 0)
        prefetch_run(address_at(first, plane.ahead), (plane.columns - 1) * plane.source_column + plane.run_bytes);
#pragma GCC unroll 4  // the loop of a short run is so small that its alignment would decide about its speed
    for (std::int64_t column = 0; column < plane.columns; ++column) {
      const char* const run = first + column * plane.source_column;
      if constexpr (prefetch == Prefetch::runs) prefetch_run(address_at(run, plane.ahead), plane.run_bytes);
      char* const to = target + row * plane.target_row + column * plane.target_column;
      if constexpr (prefetch == Prefetch::streamed) prefetch_edges(to + plane.target_column, plane.run_bytes);
      if constexpr (prefetch == Prefetch::streamed)
        Run::copy(run, to, plane.run_bytes, plane.ahead);
      else
        Run::copy(run, to, plane.run_bytes);
    }
  }
}

/// Calls `use(kind)` with the fastest of the structures above for runs of `run_bytes` >= 1 bytes.
template <class Use>
auto with_run_kind(std::int64_t run_bytes, const Use& use) {
  if (run_bytes == 1) return use(ExactRun<1>{});
  if (run_bytes == 2) return use(ExactRun<2>{});
  if (run_bytes == 4) return use(ExactRun<4>{});
  if (run_bytes == 8) return use(ExactRun<8>{});
  if (run_bytes == 16) return use(ExactRun<16>{});
  if (run_bytes <= 4) return use(OverlappingRun<2, 2>{});
  if (run_bytes <= 8) return use(OverlappingRun<4, 2>{});
  if (run_bytes <= 16) return use(OverlappingRun<8, 2>{});
  if (run_bytes <= 32) return use(OverlappingRun<16, 2>{});
  if (run_bytes <= 64) return use(OverlappingRun<32, 2>{});
  if (run_bytes <= 128) return use(OverlappingRun<64, 2>{});
  if (run_bytes <= 192) return use(OverlappingRun<64, 3>{});
  if (run_bytes <= 256) return use(OverlappingRun<64, 4>{});
  return use(LongRun{});
}

using PlaneCopy = void (*)(Plane, const char*, char*);

/// The instance of copy_plane for runs of `run_bytes` >= 1 bytes.
/// \param prefetch  `none`, `runs` or `rows`.
inline PlaneCopy plane_copy(std::int64_t run_bytes, Prefetch prefetch = Prefetch::none) {
  return with_run_kind(run_bytes, [prefetch](auto kind) -> PlaneCopy {
    using Run = decltype(kind);
    if (prefetch == Prefetch::runs) return copy_plane<Run, Prefetch::runs>;
    return prefetch == Prefetch::rows ? copy_plane<Run, Prefetch::rows> : copy_plane<Run, Prefetch::none>;
  });
}

/// A run of a list: offsets in bytes from the starts of the two arrays.
struct ListedRun {
  std::int64_t source, target;
};

/// Copies runs of one length at the offsets of a list.
template <class Run>
void copy_listed(const ListedRun* runs, std::size_t count, std::int64_t run_bytes, const char* source, char* target) {
  for (std::size_t i = 0; i < count; ++i) Run::copy(source + runs[i].source, target + runs[i].target, run_bytes);
}

using ListedCopy = void (*)(const ListedRun*, std::size_t, std::int64_t, const char*, char*);

/// The instance of copy_listed for runs of `run_bytes` >= 1 bytes.
inline ListedCopy listed_copy(std::int64_t run_bytes) {
  return with_run_kind(run_bytes, [](auto kind) -> ListedCopy { return copy_listed<decltype(kind)>; });
}

}  // namespace dace_redist::detail
