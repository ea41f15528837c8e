// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The innermost loops of every copy: runs of bytes in a plane of two strided dimensions, and stores past the cache.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace dace_redist::detail {

inline constexpr std::int64_t line_bytes = 64;          ///< cache line, the unit of a store past the cache
inline constexpr std::int64_t longest_fixed_run = 512;  ///< longer runs are left to memcpy

/// Two dimensions of runs; all strides and lengths in bytes.
struct Plane {
  std::int64_t rows, columns, run_bytes;
  std::int64_t source_row, source_column;  ///< strides of the source
  std::int64_t target_row, target_column;  ///< strides of the target
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

/// Copies a run of any length.
struct LongRun {
  static void copy(const char* source, char* target, std::int64_t run_bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(run_bytes));
  }
};

/// Writes one cache line past the cache; `target` is aligned to a line. Without SSE2: an ordinary store.
inline void stream_line(const char* source, char* target) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(target), _mm512_loadu_si512(source));
#elif defined(__AVX__)
  for (int part = 0; part < 64; part += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + part),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + part)));
#elif defined(__SSE2__)
  for (int part = 0; part < 64; part += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + part),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + part)));
#else
  std::memcpy(target, source, static_cast<std::size_t>(line_bytes));
#endif
}

/// Orders the stores past the cache before all later stores of this thread.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Bytes from `address` to the next line boundary, 0 to 63.
inline std::int64_t bytes_to_line(const char* address) {
  return static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(address) % line_bytes);
}

/// Copies a run of any length; the whole lines of the target are written past the cache.
struct StreamRun {
  static void copy(const char* source, char* target, std::int64_t run_bytes) {
    const std::int64_t head = bytes_to_line(target);
    if (run_bytes < head + line_bytes) return LongRun::copy(source, target, run_bytes);
    if (head > 0) LongRun::copy(source, target, head);
    std::int64_t done = head;
    for (; done + line_bytes <= run_bytes; done += line_bytes) stream_line(source + done, target + done);
    if (done < run_bytes) LongRun::copy(source + done, target + done, run_bytes - done);
  }
};

/// The two loops around every run. The plane is taken by value: stores through `char*` cannot change its members.
template <class Run>
void copy_plane(Plane plane, const char* source, char* target) {
  for (std::int64_t row = 0; row < plane.rows; ++row)
    for (std::int64_t column = 0; column < plane.columns; ++column)
      Run::copy(source + row * plane.source_row + column * plane.source_column,
                target + row * plane.target_row + column * plane.target_column, plane.run_bytes);
}

using PlaneCopy = void (*)(Plane, const char*, char*);

/// The instance of copy_plane for runs of `run_bytes` >= 1 bytes.
inline PlaneCopy plane_copy(std::int64_t run_bytes) {
  switch (run_bytes) {
    case 1: return copy_plane<ExactRun<1>>;
    case 2: return copy_plane<ExactRun<2>>;
    case 4: return copy_plane<ExactRun<4>>;
    case 8: return copy_plane<ExactRun<8>>;
    case 16: return copy_plane<ExactRun<16>>;
    default: break;
  }
  if (run_bytes <= 4) return copy_plane<OverlappingRun<2, 2>>;
  if (run_bytes <= 8) return copy_plane<OverlappingRun<4, 2>>;
  if (run_bytes <= 16) return copy_plane<OverlappingRun<8, 2>>;
  if (run_bytes <= 32) return copy_plane<OverlappingRun<16, 2>>;
  if (run_bytes <= 64) return copy_plane<OverlappingRun<32, 2>>;
  switch ((run_bytes + 63) / 64) {
    case 2: return copy_plane<OverlappingRun<64, 2>>;
    case 3: return copy_plane<OverlappingRun<64, 3>>;
    case 4: return copy_plane<OverlappingRun<64, 4>>;
    case 5: return copy_plane<OverlappingRun<64, 5>>;
    case 6: return copy_plane<OverlappingRun<64, 6>>;
    case 7: return copy_plane<OverlappingRun<64, 7>>;
    case 8: return copy_plane<OverlappingRun<64, 8>>;
    default: return copy_plane<LongRun>;
  }
}

/// Asks for the source lines of a plane, so that they arrive while the plane before it is copied.
inline void prefetch_plane(const Plane& plane, const char* source) {
#if defined(__GNUC__)
  const std::int64_t row_bytes = (plane.columns - 1) * plane.source_column;
  const bool dense = plane.source_column < line_bytes && plane.source_column > -line_bytes;
  const std::int64_t step = !dense ? plane.source_column : row_bytes < 0 ? -line_bytes : line_bytes;
  for (std::int64_t row = 0; row < plane.rows; ++row) {
    const char* start = source + row * plane.source_row;
    for (std::int64_t at = 0; row_bytes < 0 ? at >= row_bytes : at <= row_bytes; at += step)
      for (std::int64_t byte = 0; byte < plane.run_bytes; byte += line_bytes) __builtin_prefetch(start + at + byte);
    __builtin_prefetch(start + row_bytes + plane.run_bytes - 1);
  }
#endif
}

/// Gathers bytes for a growing target address and writes whole cache lines of it past the cache.
///
/// This makes stores past the cache possible for every run length and alignment: the runs are put together in a buffer
/// that stays in the first-level cache. Parts of lines, at both ends, are written by ordinary stores.
class LineWriter {
 public:
  static constexpr std::int64_t capacity = 2048;
  static constexpr std::int64_t longest_piece = capacity - line_bytes;

  /// Where to put the next `nbytes` <= longest_piece bytes, which belong at `target`.
  char* place(char* target, std::int64_t nbytes) {
    if (target != target_ + (end_ - begin_)) {
      finish();
      begin_ = end_ = (line_bytes - bytes_to_line(target)) % line_bytes;
      target_ = target;
    }
    if (end_ + nbytes > capacity) write_lines();
    char* const result = at(end_);
    end_ += nbytes;
    return result;
  }

  /// Writes what is left; the writer is then empty.
  void finish() {
    write_lines();
    if (end_ > begin_) LongRun::copy(at(begin_), target_, end_ - begin_);
    begin_ = end_ = 0;
    target_ = nullptr;
  }

 private:
  char* at(std::int64_t byte) { return lines_.data() + byte; }

  void write_lines() {
    if (end_ < line_bytes) return;
    const std::int64_t whole = end_ - end_ % line_bytes;
    std::int64_t line = begin_;
    if (begin_ > 0) {
      line = line_bytes;
      LongRun::copy(at(begin_), target_, line - begin_);
    }
    for (; line < whole; line += line_bytes) stream_line(at(line), target_ + (line - begin_));
    if (end_ > whole) LongRun::copy(at(whole), at(0), end_ - whole);
    target_ += whole - begin_;
    begin_ = 0;
    end_ -= whole;
  }

  alignas(line_bytes) std::array<char, static_cast<std::size_t>(capacity)> lines_;  // not initialised: written first
  char* target_ = nullptr;   // where lines_[begin_] goes
  std::int64_t begin_ = 0;   // first byte held; > 0 only in the first line, which lies in the target's line like it
  std::int64_t end_ = 0;     // one past the last byte held
};

}  // namespace dace_redist::detail
