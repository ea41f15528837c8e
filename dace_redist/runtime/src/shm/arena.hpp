// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// This process's memory that other processes of its node can map: one sparse segment, of which pages are committed
/// when they are used, and an allocator for it. Start reading at: Arena.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/error.hpp"
#include "core/machine.hpp"

namespace dace_redist {

/// Environment variable: the largest allocation of node-shared memory in bytes; 0 switches node-shared memory off.
inline constexpr const char* shared_memory_variable = "DACE_REDIST_SHARED_BYTES";
/// Environment variable: 0: this process does not ask Yama to let processes of its user read its memory.
inline constexpr const char* ptrace_variable = "DACE_REDIST_PTRACE";

/// Identifies the arena of a process, for the other processes of its node.
struct ArenaName {
  std::int64_t process = 0, descriptor = -1, nbytes = 0;
  std::uint64_t number = 0;  ///< random: process numbers repeat, in time and across PID namespaces

  bool operator==(const ArenaName& other) const { return process == other.process && number == other.number; }
};

/// Something that threads of a process sleep on until another process of the node rings it.
struct Bell {
  alignas(cache_line_bytes) std::atomic<std::uint32_t> rings;  ///< futex
  std::atomic<std::uint32_t> awaited;  ///< calls of ring() until it rings; 0: no thread sleeps or is about to
};

/// Start of an arena. It holds the state of the allocator, so that all libraries of a process use one arena, however
/// each of them was compiled and loaded.
struct ArenaHead {
  /// Part of the allocator's state: consecutive pages that are free or belong to one allocation.
  struct Extent {
    enum State : std::int32_t { clean, dirty, used };  ///< clean: not committed, reads as zeros

    std::int64_t offset, nbytes;
    State state;
    std::int32_t age;  ///< of a dirty extent: number of the call that freed it
  };
  /// Where memory lies that partners look for, see Arena::publish().
  struct Notice {
    std::atomic<std::uint64_t> context;
    std::atomic<std::int64_t> plan, offset;
    std::atomic<std::int32_t> readers;   ///< that have not found it yet; 0: the notice is free
    std::atomic<std::uint32_t> version;  ///< odd while its owner writes it: others may be looking for theirs
  };
  static constexpr std::int64_t nbytes = 1 << 20;
  static constexpr int layout = 2;  ///< to be raised with every change of the head
  static constexpr std::uint64_t magic_number = 0x6472'6172'656e'6100 + layout;
  static constexpr std::int64_t max_notices = 1024;
  static constexpr std::int64_t max_extents = (nbytes - 48 * 1024) / static_cast<std::int64_t>(sizeof(Extent));

  std::uint64_t magic;
  ArenaName name;
  std::atomic<std::uint32_t> lock;
  std::int32_t extent_count, frees;
  std::int64_t dirty_bytes;
  std::int64_t exported;  ///< by which partners map this process's private memory, see export_memory()
  Bell waiting;           ///< of ranks that wait for partners: rung after each step of a message
  Bell service;           ///< of the service thread: rung by a partner that has waited for long
  alignas(cache_line_bytes) Notice notices[max_notices];
  alignas(4096) Extent extents[max_extents];  ///< ascending, adjacent
};
static_assert(sizeof(ArenaHead) <= ArenaHead::nbytes, "allocations begin behind the head");

/// The memory that this process shares with the other processes of its node.
///
/// The segment is as large as the machine's memory, or smaller where many ranks would have to map as many; only pages
/// in use are committed. It has no name in any file system: it is gone when the last process that maps it ends. A
/// forked child has the parent's arena mapped, shares the arrays in it with the parent, and makes an arena of its own
/// for what it allocates.
///
/// Thread-safe.
class Arena {
 public:
  /// This process's arena, made at the first call.
  /// \throws Error if there can be none.
  static Arena& own();

  /// This process's arena; null if none was made.
  static Arena* made();

  struct Allocation {
    char* bytes;
    bool zeros;  ///< whether the memory was never used before
  };

  /// Allocates whole pages of this process's arena, which is made if there is none and the limit admits the allocation.
  /// \param in_huge_pages  whether to commit huge pages at once, from 2 MiB on; else pages are committed when touched.
  /// \throws Error if there is too little memory; names what is needed and what is available.
  static Allocation allocate(std::int64_t nbytes, bool in_huge_pages);

  /// Frees an allocation of this process. Memory of a parent process is left alone.
  static void free(void* bytes) noexcept;

  /// Whether an address lies in an arena that a parent process had when it forked this one.
  static bool is_inherited(const void* address);

  /// Bytes of the allocation at an offset, whole pages.
  std::int64_t nbytes_at(std::int64_t offset) const;

  /// Bytes from the start of the arena to an address; -1 if it lies outside.
  std::int64_t offset_of(const void* address) const {
    const std::int64_t offset = static_cast<const char*>(address) - base();
    return offset >= ArenaHead::nbytes && offset < head_->name.nbytes ? offset : -1;
  }

  /// Tells partners where memory of a plan lies, before they look for it.
  /// \param readers  number of calls of find_published() that will follow.
  /// \throws Error if too many plans wait for their readers.
  void publish(std::uint64_t context, std::int64_t plan, std::int64_t offset, int readers);
  /// Takes a notice back that partners may not have read.
  void withdraw(std::uint64_t context, std::int64_t plan) noexcept;

  /// Gives address space up that is not in use, so that partners map at most so many bytes.
  void shrink(std::int64_t nbytes);

  char* at(std::int64_t offset) const { return base() + offset; }
  const ArenaName& name() const { return head_->name; }
  ArenaHead& head() const { return *head_; }

 private:
  explicit Arena(ArenaHead* head) : head_(head) {}
  static Arena* find_or_make(std::string& failure);

  Allocation take(std::int64_t nbytes, bool in_huge_pages);
  char* base() const { return reinterpret_cast<char*>(head_); }
  ArenaHead::Extent* find(std::int64_t offset) const;
  void release(std::int64_t offset) noexcept;

  ArenaHead* head_;
};

/// Whether an address lies in node-shared memory of this process.
bool is_in_arena(const void* address);

/// Frees memory of this process's arena that partners may still use as soon as `unused()` is true: now, or in a later
/// call of this function or of sweep_deferred().
void free_when(void* memory, std::function<bool()> unused);
/// Frees deferred memory that is unused by now.
void sweep_deferred();

}  // namespace dace_redist
