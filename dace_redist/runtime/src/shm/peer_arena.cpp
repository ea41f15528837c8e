// SPDX-License-Identifier: BSD-3-Clause
#include "shm/peer_arena.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "copy/chunk_walk.hpp"
#include "copy/huge_pages.hpp"

namespace dace_redist {
namespace {

std::mutex peers_guard;

std::map<std::pair<std::int64_t, std::uint64_t>, std::weak_ptr<PeerArena>>& peers() {
  static auto* const all = new std::map<std::pair<std::int64_t, std::uint64_t>, std::weak_ptr<PeerArena>>;
  return *all;
}

[[noreturn]] void throw_not_mapped(const ArenaName& name, const std::string& reason) {
  throw Error(text("cannot map the shared memory of process ", name.process, ": ", reason));
}

/// What `code`, an errno, says of opening the memory of another process.
std::string reason_of(int code) {
  return text(std::strerror(code), " (ranks in different PID or user namespaces, as of one container per rank?)");
}

}  // namespace

std::shared_ptr<PeerArena> PeerArena::map(const ArenaName& name) {
  const std::lock_guard<std::mutex> guard(peers_guard);
  std::weak_ptr<PeerArena>& known = peers()[{name.process, name.number}];
  std::shared_ptr<PeerArena> peer = known.lock();
  if (!peer) known = peer = std::shared_ptr<PeerArena>(new PeerArena(name));
  return peer;
}

PeerArena::PeerArena(const ArenaName& name) : name_(name) {
  if (name.descriptor < 0) throw Error(text("process ", name.process, " has no node-shared memory"));
  const std::string path = text("/proc/", name.process, "/fd/", name.descriptor);
  struct stat file {};
  // another process of that number may have opened a device there, for which open() would have effects
  if (stat(path.c_str(), &file) != 0) throw_not_mapped(name, reason_of(errno));
  if (!S_ISREG(file.st_mode) || file.st_size < name.nbytes) throw_not_mapped(name, "it is another process");
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) throw_not_mapped(name, reason_of(errno));
  void* const bytes = mmap(aligned_address(name.nbytes), static_cast<std::size_t>(name.nbytes), PROT_READ | PROT_WRITE,
                           MAP_SHARED, descriptor, 0);
  const int code = errno;
  close(descriptor);
  if (bytes == MAP_FAILED)
    throw_not_mapped(name, text(std::strerror(code), ", of ", name.nbytes, " bytes of address space (ulimit -v?)"));
  head_ = static_cast<ArenaHead*>(bytes);
  if (head_->magic == ArenaHead::magic_number && head_->name == name) {
    memory_.emplace(head_->exported);
    return;
  }
  munmap(bytes, static_cast<std::size_t>(name.nbytes));
  throw_not_mapped(name, "it is another process");
}

PeerArena::~PeerArena() { munmap(head_, static_cast<std::size_t>(name_.nbytes)); }

bool PeerArena::can_read(std::uintptr_t address) {
  if (reading_ == unknown) {
    char byte = 0;
    const iovec here{&byte, 1}, there{reinterpret_cast<void*>(address), 1};
    reading_ = process_vm_readv(static_cast<pid_t>(name_.process), &here, 1, &there, 1, 0) == 1 ? allowed : refused;
  }
  return reading_ == allowed;
}

bool PeerArena::read(const CopyBlock& block, std::uintptr_t source, char* target) {
  constexpr std::size_t max_runs = 64;  // of a system call
  std::array<iovec, max_runs> here, there;
  std::size_t count = 0;
  const auto copy_runs = [&] {
    const auto wanted = static_cast<ssize_t>(count) * static_cast<ssize_t>(block.run_bytes);
    const ssize_t got = process_vm_readv(static_cast<pid_t>(name_.process), here.data(), count, there.data(), count, 0);
    count = 0;
    if (got != wanted) reading_ = refused;
    return got == wanted;
  };
  detail::ChunkWalk walk(block, -1, 1, 1);
  do {
    const auto nbytes = static_cast<std::size_t>(block.run_bytes);
    here[count] = {target + block.target_offset + walk.target(), nbytes};
    there[count] = {reinterpret_cast<void*>(source + static_cast<std::uintptr_t>(block.source_offset + walk.source())),
                    nbytes};
    if (++count == max_runs && !copy_runs()) return false;
  } while (walk.advance());
  return count == 0 || copy_runs();
}

std::int64_t find_published(ArenaHead& head, std::uint64_t context, std::int64_t plan) {
  for (ArenaHead::Notice& notice : head.notices) {
    const std::uint32_t version = notice.version;
    const bool found = notice.readers != 0 && notice.context == context && notice.plan == plan;
    const std::int64_t offset = notice.offset;
    if (!found || version % 2 != 0 || notice.version != version) continue;
    notice.readers.fetch_sub(1, std::memory_order_acq_rel);
    return offset;
  }
  throw Error(text("internal error: process ", head.name.process, " has published no memory of plan ", plan));
}

void ring(Bell& bell) {
  std::uint32_t awaited = bell.awaited.load(std::memory_order_seq_cst);
  while (awaited > 0 && !bell.awaited.compare_exchange_weak(awaited, awaited - 1)) continue;
  if (awaited != 1) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell.rings), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool sleep_until_ring(Bell& bell, std::uint32_t rings, std::int64_t nanoseconds) {
  const timespec time{0, static_cast<long>(nanoseconds)};
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell.rings), FUTEX_WAIT, rings,
                 nanoseconds > 0 ? &time : nullptr, nullptr, 0) == 0 ||
         errno != ETIMEDOUT;
}

}  // namespace dace_redist
