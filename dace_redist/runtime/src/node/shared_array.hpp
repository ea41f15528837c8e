// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Arrays in node-shared memory: allocated by one rank, found again from their address, written and read by the others.

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "node/shared_memory.hpp"

namespace dace_redist {

/// Names an array's segment for as long as any process runs on this node; `number` tells it from all others, also
/// from later ones with the same descriptor.
struct ArrayName {
  SegmentName segment;
  std::uint64_t number = 0;

  bool operator==(const ArrayName& other) const {
    return number == other.number && segment.process == other.segment.process;
  }
};

namespace detail {

/// First bytes of a segment that holds an array; the array follows.
struct ArrayHead {
  static constexpr std::uint64_t magic_word = 0x7264'6572'7261'7931;
  static constexpr std::int64_t nbytes = 4096;    // a page, so that the array starts on one
  static constexpr std::int64_t not_shared = -1;  // in place of a process

  std::uint64_t magic = magic_word;
  ArrayName name;

  bool valid() const { return magic == magic_word && name.segment.process == getpid(); }
};

/// The arrays of this process. Programs that GCC compiled share one list, however they were loaded; another program
/// finds the array itself by the page before it, but not its inner addresses, and moves those through a ring.
class ArrayList {
 public:
  void add(const ArrayHead* head) {
    const std::lock_guard<std::mutex> guard(mutex_);
    nbytes_[reinterpret_cast<const char*>(head)] = head->name.segment.nbytes;
  }
  void remove(const ArrayHead* head) {
    const std::lock_guard<std::mutex> guard(mutex_);
    nbytes_.erase(reinterpret_cast<const char*>(head));
  }
  /// While a process forks, no thread of it must be in here: the child would wait for it for ever.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  /// The array that contains an address, or null.
  const ArrayHead* find(const char* address) {
    const std::lock_guard<std::mutex> guard(mutex_);
    auto next = nbytes_.upper_bound(address);
    if (next == nbytes_.begin()) return nullptr;
    const auto& [start, nbytes] = *--next;
    return address < start + nbytes ? reinterpret_cast<const ArrayHead*>(start) : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, std::int64_t> nbytes_;  // by start of the segment
};

__attribute__((visibility("default"))) inline ArrayList& array_list() {
  static auto* const list = new ArrayList;  // arrays may outlive everything
  return *list;
}

inline std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

}  // namespace detail

/// Memory for an array that the ranks of this node may share; zeros. Freed by free_shared() of this process.
/// \throws Error if there is too little, with what was needed and what there is.
inline void* allocate_shared(std::int64_t nbytes) {
  SharedSegment segment(detail::ArrayHead::nbytes + nbytes);
  auto* head = new (segment.at(0)) detail::ArrayHead{};
  head->name = {segment.name(), detail::random_number()};
  segment.forget();
  detail::array_list().add(head);
  return reinterpret_cast<char*>(head) + detail::ArrayHead::nbytes;
}

/// Memory for an array of this process alone; zeros. Freed by free_shared().
/// \throws std::bad_alloc
inline void* allocate_private(std::int64_t nbytes) {
  const std::int64_t whole = detail::ArrayHead::nbytes + nbytes;
  const auto size = static_cast<std::size_t>(whole);
  void* const bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) throw std::bad_alloc();
  ask_for_huge_pages(bytes, whole);
  new (bytes) detail::ArrayHead{0, {{detail::ArrayHead::not_shared, -1, whole}, 0}};
  return static_cast<char*>(bytes) + detail::ArrayHead::nbytes;
}

/// One line on standard error, the first time.
inline void say_ordinary_memory_is_taken(const Error& error) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) std::fprintf(stderr, "dace-redist: %s; taking ordinary memory\n", error.what());
}

/// Shared memory; where there is too little, private memory, which is said.
/// \throws std::bad_alloc if that is used up, too.
inline void* allocate_shared_or_private(std::int64_t nbytes) {
  try {
    return allocate_shared(nbytes);
  } catch (const Error& error) {
    say_ordinary_memory_is_taken(error);
  }
  return allocate_private(nbytes);
}

/// Whether an address lies in an array of allocate_shared() of this process.
inline bool is_in_shared_array(const void* address) {
  const detail::ArrayHead* const head = detail::array_list().find(static_cast<const char*>(address));
  return head && head->valid();
}

/// One piece of memory for arrays of which only one is in use at a time.
/// \param on_node  whether other ranks of the node are to see it.
inline void* allocate_for_all(bool on_node, std::initializer_list<std::int64_t> nbytes) {
  const std::int64_t most = std::max(nbytes);
  return on_node ? allocate_shared_or_private(most) : allocate_private(most);
}

/// Gives memory of the above back, also what other processes still map of it.
inline void free_shared(void* array) noexcept {
  if (!array) return;
  auto* head = reinterpret_cast<detail::ArrayHead*>(static_cast<char*>(array) - detail::ArrayHead::nbytes);
  const SegmentName segment = head->name.segment;
  if (segment.process == detail::ArrayHead::not_shared) {
    munmap(head, static_cast<std::size_t>(segment.nbytes));
    return;
  }
  detail::array_list().remove(head);
  if (segment.process == getpid()) {  // else the memory goes on being its parent's
    head->magic = 0;
    fallocate(static_cast<int>(segment.descriptor), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, segment.nbytes);
  }
  close(static_cast<int>(segment.descriptor));
  munmap(head, static_cast<std::size_t>(segment.nbytes));
}

/// In a forked process: puts a copy in the place of its parent's shared array, which others do not see.
inline void take_copy(void* array) noexcept {
  char* const start = static_cast<char*>(array) - detail::ArrayHead::nbytes;
  auto* head = reinterpret_cast<detail::ArrayHead*>(start);
  const SegmentName segment = head->name.segment;
  const auto size = static_cast<std::size_t>(segment.nbytes);
  const int access = PROT_READ | PROT_WRITE, descriptor = static_cast<int>(segment.descriptor);
  detail::array_list().remove(head);
  void* const copy = mmap(nullptr, size, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy != MAP_FAILED) {
    ask_for_huge_pages(copy, segment.nbytes);
    std::memcpy(copy, start, size);
    mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, start);
  } else {  // only what the child writes is its own
    mmap(start, size, access, MAP_PRIVATE | MAP_FIXED, descriptor, 0);
  }
  new (start) detail::ArrayHead{0, {{detail::ArrayHead::not_shared, -1, segment.nbytes}, 0}};
  close(descriptor);
}

/// Tells whether an address lies in an array of allocate_shared() of this process, and where. Allocates nothing.
class SharedArrayFinder {
 public:
  struct ArrayLocation {
    bool shared = false;
    ArrayName name;
    std::int64_t offset = 0;  // bytes from the start of the segment
  };

  /// \param scratch  a segment of this process, of which the finder may overwrite the first page.
  explicit SharedArrayFinder(const SharedSegment& scratch) : list_(&detail::array_list()), scratch_(&scratch) {}

  ArrayLocation find(const void* address) const {
    const char* const bytes = static_cast<const char*>(address);
    if (const detail::ArrayHead* listed = list_->find(bytes)) return location_in(*listed, listed, bytes);
    const bool starts_page = reinterpret_cast<std::uintptr_t>(bytes) % detail::ArrayHead::nbytes == 0;
    detail::ArrayHead head;
    if (!bytes || !starts_page || !read_if_mapped(bytes - detail::ArrayHead::nbytes, head)) return {};
    return location_in(head, bytes - detail::ArrayHead::nbytes, bytes);
  }

 private:
  static ArrayLocation location_in(const detail::ArrayHead& head, const void* start, const char* address) {
    if (!head.valid()) return {};
    return {true, head.name, address - static_cast<const char*>(start)};
  }

  /// Reads memory that may not be there: the kernel, asked to write it to a file, refuses where a load would crash.
  bool read_if_mapped(const char* start, detail::ArrayHead& head) const {
    // not pwrite(), in which sanitizers look at the memory first
    const long written = syscall(SYS_pwrite64, scratch_->descriptor(), start, sizeof head, 0L);
    if (written != static_cast<long>(sizeof head)) return false;
    std::memcpy(&head, scratch_->at(0), sizeof head);
    return true;
  }

  detail::ArrayList* list_;
  const SharedSegment* scratch_;
};

/// Arrays of another process, mapped when first asked for; the latest few stay mapped.
class PartnerArrays {
 public:
  /// Start of the segment, or null if it cannot be mapped.
  char* segment(const ArrayName& name) {
    for (const Mapped& mapped : mapped_)
      if (mapped.name == name) return mapped.segment.at(0);
    try {
      Mapped made{name, SharedSegment(name.segment)};
      const auto* head = reinterpret_cast<const detail::ArrayHead*>(made.segment.at(0));
      if (head->magic != detail::ArrayHead::magic_word || !(head->name == name)) return nullptr;  // another process
      make_room(made.segment.nbytes());
      mapped_.push_back(std::move(made));
      return mapped_.back().segment.at(0);
    } catch (const Error&) {
      return nullptr;
    }
  }

 private:
  struct Mapped {
    ArrayName name;
    SharedSegment segment;
  };

  // What stays mapped is not given back to the machine when its owner frees it: two arrays may be large, more only if
  // all are small together.
  static constexpr std::size_t least_kept = 2, most_kept = 32;
  static constexpr std::int64_t most_bytes = 8 << 20;

  void make_room(std::int64_t nbytes) {
    for (const Mapped& mapped : mapped_) nbytes += mapped.segment.nbytes();
    while (mapped_.size() >= least_kept && (mapped_.size() >= most_kept || nbytes > most_bytes)) {
      nbytes -= mapped_.front().segment.nbytes();
      mapped_.erase(mapped_.begin());
    }
  }

  std::vector<Mapped> mapped_;  // the one mapped first at the front
};

}  // namespace dace_redist
