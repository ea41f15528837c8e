// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory for arrays as malloc and free give it, from a least size on in node-shared memory.

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "layout/intervals.hpp"
#include "node/shared_pool.hpp"

namespace dace_redist {

/// Allocates arrays in node-shared memory: one of its own for each, so that other ranks can map it. Small arrays, those
/// for which there is no such memory, and those with which half of this process's open files would be taken, lie in
/// ordinary memory. A forked process has copies of all of them, as of ordinary memory. Not for several threads at once.
class ArrayAllocator {
 public:
  /// Smaller arrays are not worth an open file of their own.
  static constexpr std::size_t least_shared_bytes = std::size_t{64} << 10;

  /// \param zero  whether the memory must be all zeros.
  /// \return null if there is no memory.
  void* allocate(std::size_t nbytes, bool zero) noexcept {
    void* const bytes = nbytes >= least_shared_bytes && may_open_file() ? allocate_on_node(nbytes, zero) : nullptr;
    if (bytes) return bytes;
    return zero ? std::calloc(std::max<std::size_t>(nbytes, 1), 1) : std::malloc(std::max<std::size_t>(nbytes, 1));
  }

  /// Memory of another size with what fits of the old contents. \return null if there is none; the old one stays then.
  void* resize(void* array, std::size_t nbytes) noexcept {
    if (!array) return allocate(nbytes, false);
    const auto found = blocks_.find(array);
    if (found == blocks_.end() && nbytes < least_shared_bytes)
      return std::realloc(array, std::max<std::size_t>(nbytes, 1));
    const auto there = static_cast<std::size_t>(found == blocks_.end() ? 0 : found->second.nbytes);
    if (nbytes >= least_shared_bytes && nbytes <= there && nbytes >= there / 2) return array;
    void* const made = allocate(nbytes, false);
    if (!made) return nullptr;
    std::memcpy(made, array, std::min(nbytes, there > 0 ? there : malloc_usable_size(array)));
    release(array);
    return made;
  }

  void release(void* array) noexcept {
    const auto found = blocks_.find(array);
    if (found == blocks_.end()) return std::free(array);
    const Block block = found->second;
    blocks_.erase(found);
    SharedPool::instance().give(array, block.nbytes, block.owner);
  }

  static ArrayAllocator& instance() {
    static ArrayAllocator* const allocator = [] {
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      return new ArrayAllocator;  // never freed: arrays may outlive everything
    }();
    return *allocator;
  }

 private:
  struct Block {
    std::int64_t nbytes;
    pid_t owner;  // process that it is shared by; nobody: a copy
  };
  static constexpr pid_t nobody = -1;

  bool may_open_file() const {
    rlimit files{};
    return getrlimit(RLIMIT_NOFILE, &files) != 0 || blocks_.size() < files.rlim_cur / 2;
  }

  /// \return null if there is too little node-shared memory, which is said once.
  void* allocate_on_node(std::size_t nbytes, bool zero) noexcept {
    if (nbytes > PTRDIFF_MAX / 2) return nullptr;
    const std::int64_t whole = ceil_div(static_cast<std::int64_t>(nbytes), 4096) * 4096;
    try {
      auto [bytes, used_before] = SharedPool::instance().take(whole);
      blocks_[bytes] = {whole, getpid()};
      if (zero && used_before) std::memset(bytes, 0, nbytes);
      return bytes;
    } catch (const Error& error) {
      say_ordinary_memory_is_taken(error);
    } catch (const std::bad_alloc&) {  // of the list of blocks
    }
    return nullptr;
  }

  // A child copies what its parent has at the time of the fork; the parent waits for that, or it would go on writing.

  static void before_fork() {
    ArrayAllocator& self = instance();
    if (self.blocks_.empty() || pipe2(self.copied_, O_CLOEXEC) != 0) self.copied_[0] = self.copied_[1] = -1;
    detail::array_list().lock();
  }

  static void after_fork_in_parent() {
    detail::array_list().unlock();
    int* const ends = instance().copied_;
    if (ends[0] < 0) return;
    close(ends[1]);
    char none = 0;
    while (read(ends[0], &none, 1) < 0 && errno == EINTR) {  // until the child has closed its end
    }
    close(ends[0]);
  }

  static void after_fork_in_child() {
    ArrayAllocator& self = instance();
    detail::array_list().unlock();
    for (auto& [bytes, block] : self.blocks_)
      if (std::exchange(block.owner, nobody) != nobody) take_copy(bytes);
    for (const int end : self.copied_)
      if (end >= 0) close(end);
  }

  std::map<void*, Block> blocks_;  // by start of the array
  int copied_[2] = {-1, -1};       // pipe of the fork at hand, which the child closes when it has its copies
};

}  // namespace dace_redist
