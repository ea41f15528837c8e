// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory that is kept from call to call.

#include <cstddef>
#include <memory>
#include <new>

namespace dace_redist {

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
  static constexpr std::align_val_t alignment{64};

  struct Free {
    void operator()(void* memory) const { ::operator delete(memory, alignment); }
  };

  std::unique_ptr<void, Free> memory_;
  std::size_t nbytes_ = 0;
};

}  // namespace dace_redist
