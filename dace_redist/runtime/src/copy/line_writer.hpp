// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Stores of whole cache lines, put together from runs.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "copy/copy_block.hpp"
#include "copy/copy_kernels.hpp"

namespace dace_redist::detail {

/// Gathers bytes for a growing target address in a buffer and writes whole cache lines of it with non-temporal stores,
/// which makes these possible for every run length and alignment. Partial lines at both ends get ordinary stores.
class LineWriter {
 public:
  LineWriter() = default;
  /// \param buffer  [capacity] bytes, aligned to a line.
  /// \param ahead   Source lines to prefetch between the stores.
  LineWriter(char* buffer, std::int64_t capacity, LinesAhead* ahead)
      : buffer_(buffer), capacity_(capacity), ahead_(ahead) {}

  /// Returns the place in the buffer for the next `nbytes` bytes, at most max_piece() of the writers, of `target`.
  char* place(char* target, std::int64_t nbytes) {
    if (target != target_ + (end_ - begin_)) {
      finish();
      begin_ = end_ = (line_bytes - bytes_to_line(target)) % line_bytes;
      target_ = target;
    }
    if (end_ + nbytes > capacity_) write_lines();
    char* const result = buffer_ + end_;
    end_ += nbytes;
    return result;
  }

  /// Writes all bytes held.
  void finish() {
    write_lines();
    if (end_ > begin_) LongRun::copy(buffer_ + begin_, target_, end_ - begin_);
    begin_ = end_ = 0;
    target_ = nullptr;
  }

 private:
  void write_lines() {
    if (end_ < line_bytes) return;
    const std::int64_t whole = end_ - end_ % line_bytes;
    std::int64_t line = begin_;
    if (begin_ > 0) {
      line = line_bytes;
      ShortRun::copy(buffer_ + begin_, target_, line - begin_);
    }
    for (; line < whole; line += line_bytes) {
      ahead_->prefetch_next();
      stream_line(buffer_ + line, target_ + (line - begin_));
    }
    ShortRun::copy(buffer_ + whole, buffer_, end_ - whole);
    target_ += whole - begin_;
    begin_ = 0;
    end_ -= whole;
  }

  char* buffer_ = nullptr;
  std::int64_t capacity_ = 0;
  LinesAhead* ahead_ = nullptr;
  char* target_ = nullptr;  // destination of buffer_[begin_]
  std::int64_t begin_ = 0;  // first byte held; > 0 only in the first line, at its offset in the target's line
  std::int64_t end_ = 0;    // one past the last byte held
};

/// A LineWriter for each copy of a batch. Their buffers, on the stack, together fit the first-level cache.
class LineWriters {
 public:
  explicit LineWriters(std::size_t count)
      : count_(count),
        capacity_(std::min(max_capacity, buffer_bytes / static_cast<std::int64_t>(count) / line_bytes * line_bytes)) {
    for (std::size_t i = 0; i < count; ++i)
      writers_[i] = LineWriter(buffer_.data() + static_cast<std::int64_t>(i) * capacity_, capacity_, &ahead_);
  }
  LineWriters(const LineWriters&) = delete;
  LineWriters& operator=(const LineWriters&) = delete;

  LineWriter& operator[](std::size_t index) { return writers_[index]; }
  std::int64_t max_piece() const { return capacity_ - line_bytes; }
  /// Sets the source lines that are prefetched between the stores of all writers.
  void prefetch(const LinesAhead& lines) { ahead_ = lines; }
  void finish() {
    for (std::size_t i = 0; i < count_; ++i) writers_[i].finish();
  }

 private:
  static constexpr std::int64_t buffer_bytes = 30 << 10, max_capacity = 8 << 10;

  alignas(line_bytes) std::array<char, static_cast<std::size_t>(buffer_bytes)> buffer_;  // not initialised
  std::array<LineWriter, max_batch> writers_;
  std::size_t count_;
  std::int64_t capacity_;
  LinesAhead ahead_;
};

static_assert(sizeof(LineWriters) <= 32 << 10, "must fit the small stacks of threads");

// Lines that are put together in registers, from runs that follow each other in the target: with non-temporal stores,
// reading and writing overlap as they do in memcpy. Needs AVX-512; without, fills_lines() is false.

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
