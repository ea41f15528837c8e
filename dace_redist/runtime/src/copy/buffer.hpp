// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory for packed messages.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "copy/huge_pages.hpp"
#include "core/machine.hpp"

namespace dace_redist {

/// Bytes aligned to cache lines, not touched when allocated: the first writer decides on which NUMA node they lie.
/// Large buffers lie in pages of their own, huge ones if possible, and are given back to the system when freed.
class Buffer {
 public:
  Buffer() = default;
  /// \throws std::bad_alloc
  explicit Buffer(std::int64_t nbytes) {
    if (nbytes <= 0) return;
    const std::int64_t mapped = nbytes < min_mapped_bytes ? 0 : nbytes;
    bytes_ = {mapped > 0 ? map_huge_pages(nbytes) : allocate(nbytes), FreeBuffer{mapped}};
    if (!bytes_) throw std::bad_alloc();
  }
  char* at(std::int64_t offset) const { return bytes_.get() + offset; }
  explicit operator bool() const { return bytes_ != nullptr; }

 private:
  static constexpr std::int64_t min_mapped_bytes = std::int64_t{1} << 20;

  static char* allocate(std::int64_t nbytes) {
    const auto rounded = static_cast<std::size_t>(whole_lines(nbytes));
    return static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(cache_line_bytes), rounded));
  }

  struct FreeBuffer {
    std::int64_t mapped;  // bytes; 0: allocated
    void operator()(char* bytes) const { mapped > 0 ? unmap_huge_pages(bytes, mapped) : std::free(bytes); }
  };
  std::unique_ptr<char, FreeBuffer> bytes_{nullptr, FreeBuffer{0}};
};

}  // namespace dace_redist
