// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Rows of runs that follow each other in the target, written past the cache in whole lines that are put together in
/// registers: reading and writing then overlap as they do in memcpy. Takes AVX-512; without it nothing fits.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "dace_redist/copy_kernels.hpp"

namespace dace_redist::detail {

/// Where the lines of a target come from, in a row of runs that follow each other there. The pattern repeats after as
/// many runs as fill whole lines.
class LinePattern {
 public:
  /// Whether a line holds parts of two runs at most, and the pattern is short.
  static constexpr bool fits([[maybe_unused]] std::int64_t run_bytes) {
#if defined(__AVX512BW__)
    return run_bytes >= line_bytes && run_bytes / std::gcd(run_bytes, line_bytes) <= most_lines;
#else
    return false;
#endif
  }

  LinePattern() {}  // the lines are not initialised: set_head() writes them

  /// \param stride  of the runs in the source, in bytes.
  LinePattern(std::int64_t run_bytes, std::int64_t stride) : run_bytes_(run_bytes), stride_(stride) {
    const std::int64_t common = std::gcd(run_bytes, line_bytes), repeats = (fewest_lines * common - 1) / run_bytes + 1;
    line_count_ = repeats * run_bytes / common;
    run_count_ = repeats * line_bytes / common;
  }

  /// Bytes of the target before the first line; 0 to 63.
  void set_head(std::int64_t head) {
    if (head == head_) return;
    head_ = head;
    for (std::int64_t i = 0; i < line_count_; ++i) {
      const std::int64_t byte = head + i * line_bytes, run = byte / run_bytes_, left = run_bytes_ - byte % run_bytes_;
      Line& line = lines_[static_cast<std::size_t>(i)];
      line.first = run * stride_ + byte % run_bytes_;
      line.second = left < line_bytes ? (run + 1) * stride_ - left : line.first;
      line.from_first = ones(std::min(left, line_bytes));
    }
  }
  std::int64_t head() const { return head_; }
  std::int64_t line_count() const { return line_count_; }
  /// Bytes of the source from one repetition to the next.
  std::int64_t source_step() const { return run_count_ * stride_; }

#if defined(__AVX512BW__)
  /// Writes the first `count` lines; `source` is the first run of the pattern, `target` the first line. Asks for what
  /// lies `ahead` bytes later in the source.
  void write(std::int64_t count, const char* source, char* target, std::int64_t ahead) const {
    for (std::int64_t i = 0; i < count; ++i) {
      prefetch(source + lines_[static_cast<std::size_t>(i)].first, ahead);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i * line_bytes), line(i, source, ~__mmask64{0}));
    }
  }
  /// Writes the first `nbytes` bytes of line `i`, with an ordinary store.
  void write_part(std::int64_t i, std::int64_t nbytes, const char* source, char* target) const {
    if (nbytes > 0) _mm512_mask_storeu_epi8(target, ones(nbytes), line(i, source, ones(nbytes)));
  }

 private:
  static void prefetch(const char* source, std::int64_t ahead) {
    const auto address = reinterpret_cast<std::uintptr_t>(source) + static_cast<std::uintptr_t>(ahead);
    _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T1);  // wherever it is
  }

  __m512i line(std::int64_t i, const char* source, __mmask64 wanted) const {
    const Line& line = lines_[static_cast<std::size_t>(i)];
    const __mmask64 from_first = line.from_first & wanted, from_second = ~line.from_first & wanted;
    if (from_first == ~__mmask64{0}) return _mm512_loadu_si512(source + line.first);
    return _mm512_mask_loadu_epi8(_mm512_maskz_loadu_epi8(from_first, source + line.first), from_second,
                                  source + line.second);
  }
#else
  void write(std::int64_t, const char*, char*, std::int64_t) const {}
  void write_part(std::int64_t, std::int64_t, const char*, char*) const {}
#endif

 private:
  static constexpr std::int64_t most_lines = 32, fewest_lines = 4;

  struct Line {
    std::int64_t first, second;  // bytes from the first run to this line's bytes of the one, and of the next less those
    std::uint64_t from_first;    // bit per byte
  };

  /// The lowest `count` bits, 1 to 64.
  static std::uint64_t ones(std::int64_t count) { return ~std::uint64_t{0} >> (64 - count); }

  std::int64_t run_bytes_ = 0, stride_ = 0, line_count_ = 0, run_count_ = 0, head_ = -1;
  std::array<Line, most_lines> lines_;  // [line_count_]
};

/// A row on its way from one place to another.
struct AssembledRow {
  LinePattern pattern;
  const char* source;  // first run
  char* target;        // first line

  /// Writes what comes before the first line.
  void begin(const char* row_source, char* row_target) {
    const std::int64_t head = bytes_to_line(row_target);
    if (head > 0) LongRun::copy(row_source, row_target, head);
    pattern.set_head(head);
    source = row_source;
    target = row_target + head;
  }
  /// Writes `count` lines of the pattern's repetition `index`.
  void write(std::int64_t index, std::int64_t count, std::int64_t ahead) const {
    pattern.write(count, source_of(index), line_of(index), ahead);
  }
  /// Writes the first `nbytes` bytes of line `i` of a repetition, with an ordinary store.
  void write_part(std::int64_t index, std::int64_t i, std::int64_t nbytes) const {
    pattern.write_part(i, nbytes, source_of(index), line_of(index) + i * line_bytes);
  }

 private:
  const char* source_of(std::int64_t index) const { return source + index * pattern.source_step(); }
  char* line_of(std::int64_t index) const { return target + index * pattern.line_count() * line_bytes; }
};

/// Writes rows of `nbytes` bytes that have begun, a few lines of each in turn. The rows stay as they are: ordinary
/// stores among those past the cache would wait for them.
inline void assemble_rows(const AssembledRow* rows, std::size_t count, std::int64_t nbytes, std::int64_t ahead) {
  const std::int64_t lines = rows[0].pattern.line_count();
  const std::int64_t together = (nbytes - line_bytes) / line_bytes / lines;  // repetitions that fit whatever the head
  for (std::int64_t index = 0; index < together; ++index)
    for (std::size_t r = 0; r < count; ++r) rows[r].write(index, lines, ahead);
  for (std::size_t r = 0; r < count; ++r) {
    const std::int64_t left = nbytes - rows[r].pattern.head() - together * lines * line_bytes;
    const bool one_more = left / line_bytes >= lines;
    const std::int64_t last = together + one_more, rest = left / line_bytes - one_more * lines;
    if (one_more) rows[r].write(together, lines, ahead);
    rows[r].write(last, rest, ahead);
    rows[r].write_part(last, rest, left % line_bytes);
  }
}

}  // namespace dace_redist::detail
