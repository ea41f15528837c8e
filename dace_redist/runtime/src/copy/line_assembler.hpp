// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Stores of whole cache lines, put together in registers from runs that follow each other in the target: with
/// non-temporal stores, reading and writing overlap as they do in memcpy. Needs AVX-512; without, fills_lines() is
/// false.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "copy/copy_block.hpp"
#include "copy/copy_kernels.hpp"

namespace dace_redist::detail {

/// Whether a LineAssembler takes runs: a line holds parts of two at most, and few lines take up whole runs.
constexpr bool fills_lines([[maybe_unused]] std::int64_t run_bytes) {
#if defined(__AVX512BW__)
  constexpr std::int64_t max_lines = 32;
  return run_bytes >= line_bytes && run_bytes / std::gcd(run_bytes, line_bytes) <= max_lines;
#else
  return false;
#endif
}

/// Writes a row of one block for each endpoint of a batch, a few lines of each in turn: where the endpoints follow each
/// other in the source, it is read in order.
///
/// The loop over lines loads nothing but source data: measured, three further loads per line cost 10 % of bandwidth,
/// six 25 %. So the lines of a turn can be unrolled for runs of a multiple of 16 bytes, up to max_known_run; measured,
/// this pays where several endpoints are written in turn.
template <bool non_temporal>
class LineAssembler {
 public:
  /// \param run_bytes  Bytes of a run, see fills_lines().
  /// \param stride     Distance of runs in the source, in bytes.
  /// \param row_bytes  Bytes of a row in the target.
  LineAssembler(std::int64_t run_bytes, std::int64_t stride, std::int64_t row_bytes, bool unrolled)
      : run_bytes_(run_bytes),
        gap_(stride - run_bytes),
        row_bytes_(row_bytes),
        turn_bytes_(lines_of_turn(run_bytes) * line_bytes),
        source_step_(turn_bytes_ / run_bytes * stride),
        write_row_(unrolled ? find_writer(run_bytes) : &LineAssembler::write_row<any_run>) {}

  /// Writes a row for each endpoint.
  /// \param from, to  Bytes from the sources and targets of the endpoints to those of the row.
  /// \param ahead     Prefetch distance in the source, in bytes.
  void write(const CopyEndpoints* endpoints, std::size_t count, std::int64_t from, std::int64_t to,
             std::int64_t ahead) const {
    (this->*write_row_)(endpoints, count, from, to, ahead);
  }

 private:
  static constexpr std::int64_t min_turn_lines = 4, any_run = 0, max_known_run = 512;

  using WriteRow = void (LineAssembler::*)(const CopyEndpoints*, std::size_t, std::int64_t, std::int64_t,
                                           std::int64_t) const;

  template <std::int64_t known_run = line_bytes>
  static WriteRow find_writer(std::int64_t run_bytes) {
    if constexpr (known_run > max_known_run)
      return &LineAssembler::write_row<any_run>;
    else
      return run_bytes == known_run ? &LineAssembler::write_row<known_run> : find_writer<known_run + 16>(run_bytes);
  }

  /// Lines of a turn: at least min_turn_lines, and as many as take up whole runs.
  static constexpr std::int64_t lines_of_turn(std::int64_t run_bytes) {
    const std::int64_t common = std::gcd(run_bytes, line_bytes);
    return ((min_turn_lines * common - 1) / run_bytes + 1) * run_bytes / common;
  }

  template <std::int64_t known_run>
  void write_row(const CopyEndpoints* endpoints, std::size_t count, std::int64_t from, std::int64_t to,
                 std::int64_t ahead) const {
    const LineAssembler rows = *this;  // a copy, which stores through `char*` cannot change
    const std::int64_t turn_bytes =
        known_run == any_run ? rows.turn_bytes_ : lines_of_turn(std::max(known_run, line_bytes)) * line_bytes;
    for (std::int64_t done = 0; done < rows.row_bytes_; done += turn_bytes, from += rows.source_step_)
      for (std::size_t p = 0; p < count; ++p) {
        const char* const source = endpoints[p].source + from;
        char* const target = endpoints[p].target + to;
        const std::int64_t head = bytes_to_line(target), left = rows.row_bytes_ - head - done;
        if constexpr (known_run != any_run) {
          if (head == 0 && left >= turn_bytes) {
            write_turn<known_run>(source, target + done, rows.gap_, ahead,
                                  std::make_integer_sequence<std::int64_t, lines_of_turn(known_run)>{});
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
  /// Position in the source of the next line.
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
  template <std::int64_t known_run, class Lines>
  static void write_turn(const char*, char*, std::int64_t, std::int64_t, Lines) {}
  static void write_lines(const char*, char*, std::int64_t, std::int64_t, std::int64_t) {}
#endif

  std::int64_t run_bytes_, gap_, row_bytes_, turn_bytes_, source_step_;
  WriteRow write_row_;
};

}  // namespace dace_redist::detail
