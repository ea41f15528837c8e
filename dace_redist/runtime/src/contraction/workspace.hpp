// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory that is kept from call to call.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "layout/intervals.hpp"

namespace dace_redist {

namespace detail {

inline constexpr Index buffer_alignment = 64;  ///< bytes

/// Elements of a buffer, rounded up so that what follows it is aligned.
inline Index aligned_count(Index count, std::size_t element_bytes) {
  const Index unit = std::max<Index>(1, buffer_alignment / static_cast<Index>(element_bytes));
  return (count + unit - 1) / unit * unit;
}

}  // namespace detail

/// A buffer aligned to cache lines, which grows on demand and never shrinks.
class Workspace {
 public:
  /// At least this many bytes; what was there before may be lost.
  void* reserve(std::size_t nbytes) {
    if (nbytes > nbytes_) {
      memory_.reset();
      nbytes_ = 0;
      memory_.reset(::operator new(nbytes, alignment));
      nbytes_ = nbytes;
    }
    return memory_.get();
  }

  std::size_t nbytes() const { return nbytes_; }

 private:
  static constexpr std::align_val_t alignment{detail::buffer_alignment};

  struct FreeWorkspace {
    void operator()(void* memory) const { ::operator delete(memory, alignment); }
  };

  std::unique_ptr<void, FreeWorkspace> memory_;
  std::size_t nbytes_ = 0;
};

}  // namespace dace_redist
