// SPDX-License-Identifier: BSD-3-Clause
#include "shm/arena.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <list>
#include <mutex>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "copy/huge_pages.hpp"
#include "core/machine.hpp"
#include "shm/available_memory.hpp"
#include "shm/xpmem.hpp"

namespace dace_redist {
namespace {

using Extent = ArenaHead::Extent;

/// 64 KiB with many kernels for 64-bit ARM.
std::int64_t page_bytes() {
  static const std::int64_t nbytes = sysconf(_SC_PAGESIZE);
  return nbytes;
}

constexpr const char* segment_name = "dace-redist-arena-2";
static_assert(ArenaHead::layout == 2, "the number in the segment's name is that of the layout");

/// Holds the lock of an arena, which all libraries of the process share.
class Locked {
 public:
  explicit Locked(ArenaHead& head) : head_(head) {
    while (head_.lock.exchange(1, std::memory_order_acquire) != 0) sched_yield();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { head_.lock.store(0, std::memory_order_release); }

 private:
  ArenaHead& head_;
};

/// The arena that another library of this process made; null if there is none.
ArenaHead* find_in_process() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(segment_name) == std::string::npos) continue;
    auto* const head = reinterpret_cast<ArenaHead*>(std::strtoull(line.c_str(), nullptr, 16));
    if (head->magic == ArenaHead::magic_number && head->name.process == getpid()) return head;
  }
  return nullptr;
}

int create_segment() {
  constexpr unsigned no_execution = 8;  // MFD_NOEXEC_SEAL, which older headers lack and older kernels refuse
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int descriptor = memfd_create(segment_name, flags | no_execution);
  return descriptor >= 0 || errno != EINVAL ? descriptor : memfd_create(segment_name, flags);
}

/// Maps a segment of so many bytes; MAP_FAILED if that cannot be done.
void* map_segment(int descriptor, std::int64_t nbytes) {
  if (descriptor < 0 || ftruncate(descriptor, nbytes) != 0) return MAP_FAILED;
  char* const hint = aligned_address(nbytes);
  if (!hint) return MAP_FAILED;
  return mmap(hint, static_cast<std::size_t>(nbytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
}

/// Maps a segment of at most the machine's memory; halves it while address space is short.
ArenaHead* make_head(std::string& failure) {
  const int descriptor = create_segment();
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::int64_t nbytes = round_up(std::max<std::int64_t>(memory, std::int64_t{64} << 20), huge_page_bytes);
  for (const auto& [resource, divisor] : {std::pair{RLIMIT_AS, 16}, std::pair{RLIMIT_FSIZE, 1}}) {
    rlimit limit{};  // partners map the segment, too; one larger than the limit of files ends the process
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const auto most = static_cast<std::int64_t>(limit.rlim_cur / static_cast<rlim_t>(divisor));
    nbytes = std::min(nbytes, most / huge_page_bytes * huge_page_bytes);
  }
  void* bytes = map_segment(descriptor, nbytes);
  while (bytes == MAP_FAILED && descriptor >= 0 && nbytes / 2 >= huge_page_bytes)
    bytes = map_segment(descriptor, nbytes /= 2);
  if (bytes == MAP_FAILED) {
    failure = text("cannot map node-shared memory: ",
                   nbytes > 0 ? std::strerror(errno) : "ulimit -v or -f leaves less than a huge page");
    if (descriptor >= 0) close(descriptor);
    return nullptr;
  }
  fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);  // advisory
#ifdef PR_SET_PTRACER
  const char* const ptrace = std::getenv(ptrace_variable);
  if (!ptrace || std::strcmp(ptrace, "0") != 0)
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // cross-memory reads by ranks of this user, where Yama restricts them
#endif
  std::random_device random;
  auto* const head = new (bytes) ArenaHead;
  head->name = {getpid(), descriptor, nbytes, (std::uint64_t{random()} << 32) ^ random()};
  head->lock = 0;  // the notices are zeros, as the memory is new
  head->extent_count = 1;
  head->frees = 0;
  head->dirty_bytes = 0;
  head->exported = export_memory();
  head->extents[0] = {ArenaHead::nbytes, nbytes - ArenaHead::nbytes, Extent::clean, 0};
  head->magic = ArenaHead::magic_number;
  return head;
}

void erase(ArenaHead& head, std::int32_t at) {
  std::copy(head.extents + at + 1, head.extents + head.extent_count, head.extents + at);
  --head.extent_count;
}

/// Joins a clean extent with its clean neighbours.
void merge_clean(ArenaHead& head, std::int32_t at) {
  const auto joins = [&](std::int32_t left) {
    return left >= 0 && left + 1 < head.extent_count && head.extents[left].state == Extent::clean &&
           head.extents[left + 1].state == Extent::clean;
  };
  for (const std::int32_t left : {at, at - 1})
    if (joins(left)) {
      head.extents[left].nbytes += head.extents[left + 1].nbytes;
      erase(head, left + 1);
    }
}

/// Gives the pages of a free extent back to the system.
void punch(ArenaHead& head, std::int32_t at) {
  Extent& extent = head.extents[at];
  if (extent.state == Extent::dirty) head.dirty_bytes -= extent.nbytes;
  char* const bytes = reinterpret_cast<char*>(&head) + extent.offset;
  const auto nbytes = static_cast<std::size_t>(extent.nbytes);
  // not by the descriptor: a program may have closed it, and the number may be that of another file
  if (madvise(bytes, nbytes, MADV_REMOVE) != 0) std::memset(bytes, 0, nbytes);
  extent.state = Extent::clean;
  merge_clean(head, at);
}

/// Number of the oldest dirty extent; -1 if there is none.
std::int32_t oldest_dirty(const ArenaHead& head) {
  std::int32_t oldest = -1;
  for (std::int32_t e = 0; e < head.extent_count; ++e)
    if (head.extents[e].state == Extent::dirty && (oldest < 0 || head.extents[e].age < head.extents[oldest].age))
      oldest = e;
  return oldest;
}

/// An eighth of the machine's memory, divided among its cores, each of which may run a rank.
std::int64_t max_dirty_bytes() {
  static const std::int64_t most = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / 8 / usable_cores();
  return most;
}

/// Splits `nbytes` off a clean extent from an aligned offset on. \return its number, or -1 if it is too small.
std::int32_t split(ArenaHead& head, std::int32_t at, std::int64_t nbytes, std::int64_t alignment) {
  const Extent whole = head.extents[at];
  const std::int64_t offset = round_up(whole.offset, alignment), end = whole.offset + whole.nbytes;
  if (offset + nbytes > end || head.extent_count + 2 > ArenaHead::max_extents) return -1;
  const Extent parts[] = {{whole.offset, offset - whole.offset, Extent::clean, 0},
                          {offset, nbytes, Extent::used, 0},
                          {offset + nbytes, end - offset - nbytes, Extent::clean, 0}};
  erase(head, at);
  std::int32_t taken = -1;
  for (const Extent& part : parts) {
    if (part.nbytes == 0) continue;
    std::copy_backward(head.extents + at, head.extents + head.extent_count, head.extents + head.extent_count + 1);
    if (part.state == Extent::used) taken = at;
    head.extents[at++] = part;
    ++head.extent_count;
  }
  return taken;
}

/// The latest freed extent of exactly this size, marked as used; -1 if there is none.
std::int32_t reuse(ArenaHead& head, std::int64_t nbytes) {
  std::int32_t latest = -1;
  for (std::int32_t e = 0; e < head.extent_count; ++e) {
    const Extent& extent = head.extents[e];
    if (extent.state == Extent::dirty && extent.nbytes == nbytes &&
        (latest < 0 || extent.age > head.extents[latest].age))
      latest = e;
  }
  if (latest < 0) return -1;
  head.extents[latest].state = Extent::used;
  head.dirty_bytes -= nbytes;
  return latest;
}

std::int32_t take_clean(ArenaHead& head, std::int64_t nbytes, std::int64_t alignment) {
  for (std::int32_t e = 0; e < head.extent_count; ++e) {
    if (head.extents[e].state != Extent::clean || head.extents[e].nbytes < nbytes) continue;
    const std::int32_t taken = split(head, e, nbytes, alignment);
    if (taken >= 0) return taken;
  }
  const std::int32_t oldest = oldest_dirty(head);
  if (oldest < 0) return -1;
  punch(head, oldest);
  return take_clean(head, nbytes, alignment);
}

[[noreturn]] void throw_too_little(std::int64_t nbytes, std::int64_t available) {
  const char* const limit = std::getenv(shared_memory_variable);
  throw Error(text("cannot allocate ", nbytes, " bytes of node-shared memory: ", available, " bytes are available",
                   limit ? text(" (", shared_memory_variable, ")") : ""));
}

/// The arena of this process, and those that it has inherited from processes that forked it.
struct ProcessArenas {
  std::mutex guard;
  std::atomic<Arena*> own{nullptr};
  std::vector<const Arena*> inherited;
  std::string failure;
};

ProcessArenas& arenas() {
  static auto* const all = [] {
    const auto in_child = [] {  // which has none of the threads that may hold the lock
      ProcessArenas& child = arenas();
      if (Arena* const of_parent = child.own.exchange(nullptr)) child.inherited.push_back(of_parent);
      child.guard.unlock();
    };
    pthread_atfork([] { arenas().guard.lock(); }, [] { arenas().guard.unlock(); }, in_child);
    return new ProcessArenas;  // never freed: arrays may outlive everything
  }();
  return *all;
}

struct Deferred {
  std::mutex guard;
  std::list<std::pair<void*, std::function<bool()>>> waiting;
};

Deferred& deferred() {
  static auto* const all = new Deferred;
  return *all;
}

}  // namespace

Arena* Arena::find_or_make(std::string& failure) {
  ArenaHead* const found = find_in_process();
  ArenaHead* const head = found ? found : make_head(failure);
  return head ? new Arena(head) : nullptr;  // never freed: arrays may outlive everything
}

Arena* Arena::made() { return arenas().own.load(std::memory_order_acquire); }

bool Arena::is_inherited(const void* address) {
  ProcessArenas& all = arenas();
  const std::lock_guard<std::mutex> guard(all.guard);
  return std::any_of(all.inherited.begin(), all.inherited.end(),
                     [address](const Arena* arena) { return arena->offset_of(address) >= 0; });
}

Arena& Arena::own() {
  if (Arena* const arena = made()) return *arena;
  ProcessArenas& all = arenas();
  const std::lock_guard<std::mutex> guard(all.guard);
  if (!all.own) all.own = find_or_make(all.failure);
  if (!all.own) throw Error(all.failure);
  return *all.own;
}

Arena::Allocation Arena::allocate(std::int64_t nbytes, bool in_huge_pages) {
  const std::int64_t limit = shared_memory_limit();
  if (nbytes > limit) throw_too_little(nbytes, limit);
  return own().take(nbytes, in_huge_pages);
}

Arena::Allocation Arena::take(std::int64_t nbytes, bool in_huge_pages) {
  const std::int64_t max_nbytes = std::numeric_limits<std::int64_t>::max() - page_bytes();
  const std::int64_t whole = round_up(std::clamp<std::int64_t>(nbytes, 1, max_nbytes), page_bytes());
  const bool huge = in_huge_pages && whole >= huge_page_bytes;
  std::int64_t offset = 0;
  {
    const Locked locked(*head_);
    std::int32_t taken = reuse(*head_, whole);
    if (taken >= 0) return {at(head_->extents[taken].offset), false};
    const std::int64_t available = whole >= checked_bytes ? available_memory() : whole;
    while (whole > available && oldest_dirty(*head_) >= 0) punch(*head_, oldest_dirty(*head_));
    if (whole > available && whole > available_memory()) throw_too_little(nbytes, available_memory());
    taken = take_clean(*head_, whole, huge ? huge_page_bytes : page_bytes());
    if (taken < 0 && head_->extent_count + 2 > ArenaHead::max_extents)
      throw Error(text("cannot allocate ", nbytes, " bytes of node-shared memory: the ", ArenaHead::max_extents,
                       " blocks, used or free, that a process may have are taken; use fewer, larger arrays"));
    if (taken < 0) throw_too_little(nbytes, head_->name.nbytes);
    offset = head_->extents[taken].offset;
  }
  if (huge && !commit(at(offset), whole)) {
    const std::int64_t available = available_memory();
    release(offset);
    throw_too_little(nbytes, available);
  }
  return {at(offset), true};
}

void Arena::free(void* bytes) noexcept {
  Arena* const arena = made();
  const std::int64_t offset = arena && bytes ? arena->offset_of(bytes) : -1;
  if (offset >= 0) arena->release(offset);
}

ArenaHead::Extent* Arena::find(std::int64_t offset) const {
  Extent* const end = head_->extents + head_->extent_count;
  Extent* const found = std::lower_bound(head_->extents, end, offset,
                                         [](const Extent& extent, std::int64_t at) { return extent.offset < at; });
  return found != end && found->offset == offset && found->state == Extent::used ? found : nullptr;
}

std::int64_t Arena::nbytes_at(std::int64_t offset) const {
  const Locked locked(*head_);
  const Extent* const found = find(offset);
  return found ? found->nbytes : 0;
}

void Arena::shrink(std::int64_t nbytes) {
  const Locked locked(*head_);
  Extent& last = head_->extents[head_->extent_count - 1];
  if (head_->name.nbytes <= nbytes || last.state != Extent::clean || last.offset >= nbytes) return;
  last.nbytes = nbytes - last.offset;
  head_->name.nbytes = nbytes;
}

void Arena::release(std::int64_t offset) noexcept {
  constexpr std::int32_t max_dirty_extents = 32;
  const Locked locked(*head_);
  Extent* const found = find(offset);
  if (!found) return;
  found->state = Extent::dirty;
  found->age = ++head_->frees;
  head_->dirty_bytes += found->nbytes;
  const auto dirty = [](const Extent& extent) { return extent.state == Extent::dirty; };
  while (head_->dirty_bytes > max_dirty_bytes() ||
         std::count_if(head_->extents, head_->extents + head_->extent_count, dirty) > max_dirty_extents)
    punch(*head_, oldest_dirty(*head_));
}

void Arena::publish(std::uint64_t context, std::int64_t plan, std::int64_t offset, int readers) {
  const Locked locked(*head_);
  for (ArenaHead::Notice& notice : head_->notices) {
    if (notice.readers.load(std::memory_order_acquire) != 0) continue;
    ++notice.version;
    notice.context = context;
    notice.plan = plan;
    notice.offset = offset;
    notice.readers = readers;
    ++notice.version;
    return;
  }
  throw Error(text("more than ", ArenaHead::max_notices, " plans are being made at a time"));
}

void Arena::withdraw(std::uint64_t context, std::int64_t plan) noexcept {
  for (ArenaHead::Notice& notice : head_->notices)
    if (notice.readers.load(std::memory_order_acquire) != 0 && notice.context == context && notice.plan == plan)
      notice.readers.store(0, std::memory_order_release);
}

bool is_in_arena(const void* address) {
  const Arena* const arena = Arena::made();
  return arena && arena->offset_of(address) >= 0;
}

void free_when(void* memory, std::function<bool()> unused) {
  {
    const std::lock_guard<std::mutex> locked(deferred().guard);
    deferred().waiting.emplace_back(memory, std::move(unused));
  }
  sweep_deferred();
}

void sweep_deferred() {
  const std::lock_guard<std::mutex> locked(deferred().guard);
  deferred().waiting.remove_if([](const auto& one) {
    if (!one.second()) return false;
    Arena::free(one.first);
    return true;
  });
}

}  // namespace dace_redist
