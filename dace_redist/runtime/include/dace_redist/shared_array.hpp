// Arrays in node-shared memory: allocated by one rank, found again from their address, written and read by the others.
#pragma once

#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <string>

#include "dace_redist/shared_memory.hpp"

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
  static constexpr std::int64_t nbytes = 4096;  // a page, so that the array starts on one
  static constexpr std::int64_t heap = -1;      // in place of a process: the memory is not shared

  std::uint64_t magic = magic_word;
  ArrayName name;

  bool valid() const { return magic == magic_word && name.segment.process == getpid(); }
};

inline std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

}  // namespace detail

/// Memory for an array that the ranks of this node may share; zeros. Freed by free_shared() of this process.
/// \throws Error if there is too little, with what was needed and what there is.
inline void* allocate_shared(std::int64_t nbytes) {
  SharedSegment segment(detail::ArrayHead::nbytes + nbytes);
#ifdef MADV_HUGEPAGE
  madvise(segment.at(0), static_cast<std::size_t>(segment.nbytes()), MADV_HUGEPAGE);  // a wish: no matter if refused
#endif
  auto* head = new (segment.at(0)) detail::ArrayHead{};
  head->name = {segment.name(), detail::random_number()};
  segment.forget();
  return reinterpret_cast<char*>(head) + detail::ArrayHead::nbytes;
}

/// The same; where there is too little, memory of the heap, and the first time one line on standard error.
/// \throws std::bad_alloc if that is used up, too.
inline void* allocate_shared_or_heap(std::int64_t nbytes) {
  try {
    return allocate_shared(nbytes);
  } catch (const Error& error) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) std::fprintf(stderr, "dace-redist: %s; taking ordinary memory\n", error.what());
  }
  constexpr std::int64_t page = detail::ArrayHead::nbytes;
  void* const bytes = std::aligned_alloc(page, static_cast<std::size_t>(page + (nbytes + page - 1) / page * page));
  if (!bytes) throw std::bad_alloc();
  new (bytes) detail::ArrayHead{0, {{detail::ArrayHead::heap, -1, 0}, 0}};
  return static_cast<char*>(bytes) + page;
}

/// Gives memory of the above back, also what other processes still map of it.
inline void free_shared(void* array) noexcept {
  if (!array) return;
  auto* head = reinterpret_cast<detail::ArrayHead*>(static_cast<char*>(array) - detail::ArrayHead::nbytes);
  const SegmentName segment = head->name.segment;
  if (segment.process == detail::ArrayHead::heap) return std::free(head);
  head->magic = 0;
  if (segment.process == getpid()) {  // a forked child only drops its own mapping
    fallocate(static_cast<int>(segment.descriptor), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, segment.nbytes);
    close(static_cast<int>(segment.descriptor));
  }
  munmap(head, static_cast<std::size_t>(segment.nbytes));
}

/// Tells whether an address lies in an array of allocate_shared() of this process, and where. Allocates nothing but
/// for an address it has not met.
class SharedArrayFinder {
 public:
  struct Place {
    bool shared = false;
    ArrayName name;
    std::int64_t offset = 0;  // bytes from the start of the segment
  };

  /// \param scratch  a segment of this process, of which the finder may overwrite the first page.
  explicit SharedArrayFinder(const SharedSegment& scratch) : scratch_(&scratch) {}

  /// Looks at the page before the address; then at what was found for this address before; then at the process's
  /// list of mappings. What it finds is true now: memory may have been freed and given to something else.
  Place find(const void* address) {
    if (!address) return {};
    const char* const bytes = static_cast<const char*>(address);
    if (reinterpret_cast<std::uintptr_t>(bytes) % detail::ArrayHead::nbytes == 0) {
      const Place place = place_in(bytes - detail::ArrayHead::nbytes, bytes);
      if (place.shared) return place;
    }
    for (const Seen& seen : seen_)
      if (seen.address == bytes) {
        if (!seen.start) return {};
        const Place place = place_in(seen.start, bytes);
        if (place.shared) return place;
      }
    const char* const start = mapping_of(bytes);
    seen_[next_] = {bytes, start};
    next_ = (next_ + 1) % seen_.size();
    return start ? place_in(start, bytes) : Place{};
  }

 private:
  struct Seen {
    const char* address = nullptr;
    const char* start = nullptr;  // of the segment; null: not shared
  };

  Place place_in(const char* start, const char* address) const {
    detail::ArrayHead head;
    if (!read_if_mapped(start, head) || !head.valid() || address >= start + head.name.segment.nbytes) return {};
    return {true, head.name, address - start};
  }

  /// Reads memory that may not be there: the kernel, asked to write it to a file, refuses where a load would crash.
  bool read_if_mapped(const char* start, detail::ArrayHead& head) const {
    // not pwrite(), in which sanitizers look at the memory first
    const long written = syscall(SYS_pwrite64, scratch_->descriptor(), start, sizeof head, 0L);
    if (written != static_cast<long>(sizeof head)) return false;
    std::memcpy(&head, scratch_->at(0), sizeof head);
    return true;
  }

  /// Start of the segment that is mapped at `address`; null if none of ours is.
  static const char* mapping_of(const char* address) {
    std::ifstream lines("/proc/self/maps");  // begin-end rights offset device inode path
    for (std::string line; std::getline(lines, line);) {
      unsigned long long begin = 0, end = 0, offset = 0;
      if (std::sscanf(line.c_str(), "%llx-%llx %*s %llx", &begin, &end, &offset) != 3) continue;
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      if (at < begin || at >= end) continue;
      if (line.find("/memfd:dace_redist") == std::string::npos) return nullptr;
      return address - (at - begin + offset);
    }
    return nullptr;
  }

  const SharedSegment* scratch_;
  std::array<Seen, 4> seen_{};
  std::size_t next_ = 0;
};

/// Arrays of another process, mapped when first asked for; the latest few stay mapped.
class PartnerArrays {
 public:
  /// Start of the segment, or null if it cannot be mapped.
  char* segment(const ArrayName& name) {
    for (const Mapped& mapped : mapped_)
      if (mapped.segment.nbytes() > 0 && mapped.name == name) return mapped.segment.at(0);
    try {
      Mapped& slot = mapped_[next_];
      slot = Mapped{};
      slot.segment = SharedSegment(name.segment);
      slot.name = name;
      next_ = (next_ + 1) % mapped_.size();
      return slot.segment.at(0);
    } catch (const Error&) {
      return nullptr;
    }
  }

 private:
  struct Mapped {
    ArrayName name;
    SharedSegment segment;
  };
  std::array<Mapped, 2> mapped_;
  std::size_t next_ = 0;
};

}  // namespace dace_redist
