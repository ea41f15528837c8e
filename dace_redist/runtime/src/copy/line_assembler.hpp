// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Writes rows of runs that follow each other in the target, in whole cache lines that are put together in registers.
/// With non-temporal stores, reading and writing then overlap as they do in memcpy. It needs AVX-512: on other
/// processors fills_lines() is false for every run length, and copy_batch() never uses a LineAssembler.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "copy/copy_block.hpp"
#include "copy/copy_kernels.hpp"

namespace dace_redist::detail {

/// Whether a line holds parts of two runs at most, and few lines take up whole runs: what a LineAssembler takes.
constexpr bool fills_lines([[maybe_unused]] std::int64_t run_bytes) {
#if defined(__AVX512BW__)
  constexpr std::int64_t most_lines = 32;
  return run_bytes >= line_bytes && run_bytes / std::gcd(run_bytes, line_bytes) <= most_lines;
#else
  return false;
#endif
}

/// Writes rows of one block at several places, a few lines of each in turn: where the places follow each other in the
/// source, it is read in order.
///
/// Nothing but the source is read, and nothing kept, between the lines: each further load or branch per line costs
/// bandwidth (three loads a tenth, six a quarter), as fewer lines are then on their way at a time. So the lines of a
/// turn are unrolled for some lengths of runs.
template <bool non_temporal>
class LineAssembler {
 public:
  /// \param run_bytes  bytes of a run, see fills_lines().
  /// \param stride     of the runs in the source, in bytes.
  /// \param row_bytes  bytes of a row in the target.
  LineAssembler(std::int64_t run_bytes, std::int64_t stride, std::int64_t row_bytes)
      : run_bytes_(run_bytes),
        gap_(stride - run_bytes),
        row_bytes_(row_bytes),
        turn_bytes_(lines_of_turn(run_bytes) * line_bytes),
        source_step_(turn_bytes_ / run_bytes * stride) {}

  /// Writes a row at each place. Prefetches what lies `ahead` bytes later in the source.
  /// \param from, to  bytes from the sources and targets of the places to those of the row.
  void write(const CopyEndpoints* places, std::size_t count, std::int64_t from, std::int64_t to, std::int64_t ahead) const {
    switch (run_bytes_) {
      case 64:
        return write_row<64>(places, count, from, to, ahead);
      case 80:
        return write_row<80>(places, count, from, to, ahead);
      case 96:
        return write_row<96>(places, count, from, to, ahead);
      case 128:
        return write_row<128>(places, count, from, to, ahead);
      case 192:
        return write_row<192>(places, count, from, to, ahead);
      default:
        return write_row<any_run>(places, count, from, to, ahead);
    }
  }

 private:
  static constexpr std::int64_t fewest_lines = 4, any_run = 0;

  /// Lines of a turn: at least some, and as many as take up whole runs.
  static constexpr std::int64_t lines_of_turn(std::int64_t run_bytes) {
    const std::int64_t common = std::gcd(run_bytes, line_bytes), repeats = (fewest_lines * common - 1) / run_bytes + 1;
    return repeats * run_bytes / common;
  }

  template <std::int64_t known_run>
  void write_row(const CopyEndpoints* places, std::size_t count, std::int64_t from, std::int64_t to,
                 std::int64_t ahead) const {
    const LineAssembler rows = *this;  // what is written cannot change it
    const std::int64_t turn_bytes =
        known_run == any_run ? rows.turn_bytes_ : lines_of_turn(std::max(known_run, line_bytes)) * line_bytes;
    for (std::int64_t done = 0; done < rows.row_bytes_; done += turn_bytes, from += rows.source_step_)
      for (std::size_t p = 0; p < count; ++p) {
        const char* const source = places[p].source + from;
        char* const target = places[p].target + to;
        const std::int64_t head = bytes_to_line(target), left = rows.row_bytes_ - head - done;
        if constexpr (known_run != any_run) {
          if (head == 0 && left >= turn_bytes) {
            write_turn<known_run>(source, target + done, rows.gap_, ahead);
            continue;
          }
        }
        if (head > 0 && done == 0) LongRun::copy(source, target, head);  // a row is no shorter
        rows.write_lines(source, target + head + done, head, std::min(turn_bytes, left), ahead);
      }
  }

  /// The lowest `count` bits, 0 to 63.
  static std::uint64_t ones(std::int64_t count) { return (std::uint64_t{1} << count) - 1; }

#if defined(__AVX512BW__)
  /// Where the next line comes from.
  struct Reader {
    const char* source;  // of its first byte
    std::int64_t left;   // bytes of that byte's run from there on, 0 to run_bytes

    __m512i line(std::int64_t gap) const {
      return left >= line_bytes ? _mm512_loadu_si512(source) : part(~__mmask64{0}, gap);
    }
    /// The `wanted` bytes of the line, the others zeros. `gap` lies between two runs.
    __m512i part(__mmask64 wanted, std::int64_t gap) const {
      const __mmask64 first = left >= line_bytes ? wanted : wanted & ones(left);
      return _mm512_mask_loadu_epi8(_mm512_maskz_loadu_epi8(first, source), wanted & ~first, source + gap);
    }
    void advance(std::int64_t run_bytes, std::int64_t gap) {
      if (left < line_bytes) {
        source += gap;
        left += run_bytes;
      }
      source += line_bytes;
      left -= line_bytes;
    }
  };

  static void write_line(const Reader& reader, char* target, std::int64_t gap, std::int64_t ahead) {
    prefetch_line(address_at(reader.source, ahead));
    if constexpr (non_temporal)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target), reader.line(gap));
    else
      _mm512_store_si512(target, reader.line(gap));
  }

  /// Writes the lines of a turn that begins with a run.
  template <std::int64_t known_run>
  static void write_turn(const char* source, char* target, std::int64_t gap, std::int64_t ahead) {
    write_turn<known_run>(source, target, gap, ahead,
                          std::make_integer_sequence<std::int64_t, lines_of_turn(known_run)>{});
  }
  template <std::int64_t known_run, std::int64_t... lines>
  static void write_turn(const char* source, char* target, std::int64_t gap, std::int64_t ahead,
                         std::integer_sequence<std::int64_t, lines...>) {
    Reader reader{source, known_run};
    ((write_line(reader, target + lines * line_bytes, gap, ahead), reader.advance(known_run, gap)), ...);
  }

  /// Writes `nbytes` bytes of a turn from its first line on, which begins `head` bytes after a run; nothing if
  /// negative.
  void write_lines(const char* run, char* target, std::int64_t head, std::int64_t nbytes, std::int64_t ahead) const {
    Reader reader{run + head, run_bytes_ - head};
    for (; nbytes >= line_bytes; nbytes -= line_bytes, target += line_bytes) {
      write_line(reader, target, gap_, ahead);
      reader.advance(run_bytes_, gap_);
    }
    if (nbytes > 0) _mm512_mask_storeu_epi8(target, ones(nbytes), reader.part(ones(nbytes), gap_));
  }
#else
  template <std::int64_t known_run>
  static void write_turn(const char*, char*, std::int64_t, std::int64_t) {}
  static void write_lines(const char*, char*, std::int64_t, std::int64_t, std::int64_t) {}
#endif

  std::int64_t run_bytes_, gap_, row_bytes_, turn_bytes_, source_step_;
};

}  // namespace dace_redist::detail
