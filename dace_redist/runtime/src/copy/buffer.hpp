// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory for packed messages.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "copy/huge_pages.hpp"
#include "core/cache_line.hpp"

namespace dace_redist {

/// Bytes aligned to cache lines, not touched when allocated: the first writer decides on which NUMA node they lie.
/// Large buffers ask for huge pages.
class Buffer {
 public:
  Buffer() = default;
  /// \throws std::bad_alloc
  explicit Buffer(std::int64_t nbytes) {
    if (nbytes <= 0) return;
    const std::int64_t alignment = nbytes < min_huge_bytes ? cache_line_bytes : huge_page_bytes;
    const auto rounded = static_cast<std::size_t>(round_up(nbytes, alignment));
    bytes_.reset(static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(alignment), rounded)));
    if (!bytes_) throw std::bad_alloc();
    if (alignment == huge_page_bytes) ask_for_huge_pages(bytes_.get(), static_cast<std::int64_t>(rounded));
  }
  char* at(std::int64_t offset) const { return bytes_.get() + offset; }
  explicit operator bool() const { return bytes_ != nullptr; }

 private:
  static constexpr std::int64_t min_huge_bytes = std::int64_t{4} << 20;

  struct FreeBuffer {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, FreeBuffer> bytes_;
};

}  // namespace dace_redist
