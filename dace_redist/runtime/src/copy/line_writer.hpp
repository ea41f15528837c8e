// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Non-temporal stores of whole cache lines, put together from runs of any length.

#include <array>
#include <cstddef>
#include <cstdint>

#include "copy/copy_kernels.hpp"

namespace dace_redist::detail {

/// Gathers bytes for a growing target address and writes whole cache lines of it with non-temporal stores.
///
/// This makes non-temporal stores possible for every run length and alignment: the runs are put together in a buffer
/// that stays in the first-level cache. Parts of lines, at both ends, are written by ordinary stores.
class LineWriter {
 public:
  static constexpr std::int64_t capacity = 8192;
  static constexpr std::int64_t longest_piece = capacity - line_bytes;

  /// Between its stores the writer will prefetch these.
  void prefetch_from(LinesAhead* ahead) { ahead_ = ahead; }

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
    for (; line < whole; line += line_bytes) {
      if (ahead_) ahead_->prefetch_next();
      stream_line(at(line), target_ + (line - begin_));
    }
    if (end_ > whole) LongRun::copy(at(whole), at(0), end_ - whole);
    target_ += whole - begin_;
    begin_ = 0;
    end_ -= whole;
  }

  alignas(line_bytes) std::array<char, static_cast<std::size_t>(capacity)> lines_;  // not initialised: written first
  LinesAhead* ahead_ = nullptr;
  char* target_ = nullptr;  // where lines_[begin_] goes
  std::int64_t begin_ = 0;  // first byte held; > 0 only in the first line, which lies in the target's line like it
  std::int64_t end_ = 0;    // one past the last byte held
};

}  // namespace dace_redist::detail
