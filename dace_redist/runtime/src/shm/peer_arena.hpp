// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The arena of another process of this node: mapped once, or read by the kernel.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "copy/copy_block.hpp"
#include "shm/arena.hpp"
#include "shm/xpmem.hpp"

namespace dace_redist {

/// Another process's arena, mapped into this process as long as anybody holds it.
class PeerArena {
 public:
  /// Maps an arena, or returns the mapping that this process has already.
  /// \throws Error if it cannot be mapped, as between ranks in different PID namespaces.
  static std::shared_ptr<PeerArena> map(const ArenaName& name);

  ~PeerArena();
  PeerArena(const PeerArena&) = delete;
  PeerArena& operator=(const PeerArena&) = delete;

  char* at(std::int64_t offset) const { return reinterpret_cast<char*>(head_) + offset; }
  ArenaHead& head() const { return *head_; }

  /// Maps private memory of that process by XPMEM.
  /// \return where it lies here, as long as the caller holds it; null if it cannot be mapped.
  std::shared_ptr<char> map(std::uintptr_t address, std::int64_t nbytes) { return memory_->map(address, nbytes); }

  /// Whether this process may read the private memory of that one. The kernel allows it to processes of one user unless
  /// the machine is set up otherwise (`ptrace_scope`, seccomp). Asked once; a refusal is remembered.
  bool can_read(std::uintptr_t address);

  /// Copies a block whose source lies in private memory of that process.
  /// \param block   at most 1 GiB.
  /// \param source  address of the source array there.
  /// \param target  start of the target array here.
  /// \return false if the kernel refused; the target then holds a part of it.
  bool read(const CopyBlock& block, std::uintptr_t source, char* target);

 private:
  explicit PeerArena(const ArenaName& name);

  ArenaName name_;
  ArenaHead* head_ = nullptr;
  std::optional<ForeignMemory> memory_;
  enum Reading : int { unknown, allowed, refused };
  std::atomic<int> reading_{unknown};
};

/// The offset that the owner of an arena has published for a plan. \throws Error if it has not.
std::int64_t find_published(ArenaHead& head, std::uint64_t context, std::int64_t plan);

/// Wakes the threads that sleep on a bell, if any do and this is the last call that they wait for. What they wait for
/// must have been stored before, followed by a sequentially consistent fence.
void ring(Bell& bell);

/// Sleeps until a bell rings or, if `nanoseconds` is not 0, so much time has passed.
/// \param rings  what the bell had counted before the caller last looked for something to do.
/// \return false if the time has passed.
bool sleep_until_ring(Bell& bell, std::uint32_t rings, std::int64_t nanoseconds);

/// Looks for something to do; if there is nothing, sleeps until a bell rings and looks again. A ring between the two is
/// not lost. \param look  returns whether there was something to do. \return what it returned.
/// \param awaited  number of calls of ring() before which there is nothing to do.
template <class Look>
bool look_or_sleep(Bell& bell, std::int64_t nanoseconds, const Look& look, std::uint32_t awaited = 1) {
  const std::uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
  bell.awaited.store(awaited, std::memory_order_seq_cst);  // after the load: a ring that resets it changes `rings`
  std::atomic_thread_fence(std::memory_order_seq_cst);     // before the loads of look()
  return look() || (sleep_until_ring(bell, rings, nanoseconds) && look());
}

}  // namespace dace_redist
