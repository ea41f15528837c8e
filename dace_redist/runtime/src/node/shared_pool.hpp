// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Reuse of node-shared memory.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <utility>

#include "core/error.hpp"
#include "node/shared_array.hpp"

namespace dace_redist {

/// Node-shared memory that was given back and may be used again: new pages cost more than a copy of them. The oldest
/// goes first where it keeps too many bytes or open files.
class SharedPool {
 public:
  /// \return the memory, and whether it was used before; else it is zeros.
  std::pair<void*, bool> take(std::int64_t nbytes) {
    if (process_ != getpid()) {  // a forked process: what is kept here belongs to its parent
      kept_.clear();
      kept_bytes_ = 0;
      process_ = getpid();
    }
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [nbytes](const ReusableMemory& block) { return block.nbytes == nbytes; });
    if (found != kept_.rend()) {
      void* const bytes = found->bytes;
      kept_.erase(std::next(found).base());
      kept_bytes_ -= nbytes;
      return {bytes, true};
    }
    try {
      return {allocate_shared(nbytes), false};
    } catch (const Error&) {
      if (kept_.empty()) throw;
      shrink(0, 0);
      return {allocate_shared(nbytes), false};
    }
  }

  void give(void* bytes, std::int64_t nbytes, pid_t owner) {
    if (owner != getpid() || nbytes > most_bytes()) return free_shared(bytes);
    kept_.push_back({bytes, nbytes});
    kept_bytes_ += nbytes;
    shrink(most_blocks, most_bytes());
  }

  static SharedPool& instance() {
    static SharedPool* const pool = new SharedPool;  // never freed: arrays may outlive everything
    return *pool;
  }

 private:
  struct ReusableMemory {
    void* bytes;
    std::int64_t nbytes;
  };
  static constexpr std::size_t most_blocks = 32;

  /// An eighth of the machine's memory, divided among its cores, each of which may run a rank.
  static std::int64_t most_bytes() {
    static const std::int64_t most = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / 8 /
                                     std::max<std::int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
    return most;
  }

  void shrink(std::size_t blocks, std::int64_t nbytes) {
    while (kept_.size() > blocks || kept_bytes_ > nbytes) {
      free_shared(kept_.front().bytes);
      kept_bytes_ -= kept_.front().nbytes;
      kept_.pop_front();
    }
  }

  std::deque<ReusableMemory> kept_;  // oldest first
  std::int64_t kept_bytes_ = 0;
  pid_t process_ = getpid();
};

}  // namespace dace_redist
