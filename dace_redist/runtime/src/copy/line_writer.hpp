// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Non-temporal stores of whole cache lines, put together from runs of any length.

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

}  // namespace dace_redist::detail
