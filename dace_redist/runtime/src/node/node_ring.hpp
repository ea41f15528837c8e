// What two ranks of a node share for the messages from one to the other: counters, and a ring of staging slots.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "copy/copy.hpp"
#include "distribution/schedule.hpp"
#include "node/shared_array.hpp"

namespace dace_redist {

/// Strides of a local array as plain numbers, for shared memory; none: C order.
struct PlainStrides {
  PlainStrides() = default;
  explicit PlainStrides(const LocalLayout& layout) : ndim(static_cast<Index>(layout.strides.size())) {
    std::copy(layout.strides.begin(), layout.strides.end(), values.begin());
  }
  LocalLayout layout() const { return {{values.begin(), values.begin() + ndim}}; }
  bool operator==(const LocalLayout& layout) const {
    return layout.strides.size() == static_cast<std::size_t>(ndim) &&
           std::equal(layout.strides.begin(), layout.strides.end(), values.begin());
  }

  Index ndim = 0;
  std::array<Index, max_block_dims> values{};
};

/// How a message moves, see NodeExchange.
enum class Way : std::uint64_t { undecided, ring, push, pull, read };

/// Where an array lies and how.
struct Announcement {
  SharedArrayFinder::Place place;
  PlainStrides strides;
  std::uintptr_t address = 0;  // of the source, where it is not node-shared
  std::int64_t process = 0;
  Index most_copied = 0;  // of the target: bytes that its rank copies if it reads all that it receives
};

/// One direction of one pair of ranks in shared memory; the slots follow. Numbers of exchanges and pieces only grow.
struct Ring {
  using Counter = std::atomic<std::uint64_t>;
  static_assert(Counter::is_always_lock_free, "counters in shared memory must be lock-free");
  static constexpr std::int64_t line_bytes = detail::line_bytes;
  static constexpr std::uint64_t ways = 8;

  alignas(line_bytes) Counter entered;   // by the receiver: exchange for which `target` holds
  alignas(line_bytes) Counter decision;  // by the sender: exchange * ways + way; `source` holds for it
  alignas(line_bytes) Counter finished;  // by who copies: exchange that was pushed or pulled
  alignas(line_bytes) Counter refused;   // by the receiver: exchange that it cannot pull
  alignas(line_bytes) Counter written;   // by the sender: pieces
  alignas(line_bytes) Counter read;      // by the receiver: pieces
  alignas(line_bytes) Announcement target;
  alignas(line_bytes) Announcement source;

  void decide(std::uint64_t exchange, Way way) {
    decision.store(exchange * ways + static_cast<std::uint64_t>(way), std::memory_order_release);
  }
  /// The sender's choice for an exchange; undecided if it has made none yet.
  Way decided(std::uint64_t exchange) const {
    const std::uint64_t number = decision.load(std::memory_order_acquire);
    return number / ways == exchange ? static_cast<Way>(number % ways) : Way::undecided;
  }
  char* slot(std::uint64_t index, Index slot_bytes) {
    return reinterpret_cast<char*>(this + 1) + static_cast<Index>(index) * slot_bytes;
  }
};
static_assert(sizeof(Ring) <= 1024, "extra_memory.py counts 1024 bytes");

/// What one rank tells another before the first exchange.
struct Introduction {
  SegmentName segment;       // of the sender's rings
  std::uint64_t number = 0;  // to be found in it
  Index ring_offset = 0, ring_slots = 0, slot_bytes = 0;
  PlainStrides strides;
};

/// The rings of one rank's sends, in one segment, behind a page of scratch.
class RingSegment {
 public:
  /// Allocates rings of at most `depth` slots. \throws Error if there is too little shared memory.
  void allocate(std::size_t count, Index least_slot_bytes, Index depth) {
    const Index rings = static_cast<Index>(count);
    slot_bytes_ = ceil_div(std::max<Index>(1, least_slot_bytes), Ring::line_bytes) * Ring::line_bytes;
    slots_ = std::clamp(most_ring_bytes() / std::max<Index>(1, rings * slot_bytes_), Index{1}, depth);
    segment_ = SharedSegment(page_bytes + ring_bytes() * rings);
    number_ = detail::random_number();
    std::memcpy(segment_.at(number_offset), &number_, sizeof number_);
    for (Index ring = 0; ring < rings; ++ring) new (segment_.at(offset(ring))) Ring{};
  }

  Ring* ring(std::size_t index) const {
    return std::launder(reinterpret_cast<Ring*>(segment_.at(offset(static_cast<Index>(index)))));
  }
  Index slots() const { return slots_; }
  Index slot_bytes() const { return slot_bytes_; }
  Introduction introduction(std::size_t index, const LocalLayout& source) const {
    return {segment_.name(), number_, offset(static_cast<Index>(index)), slots_, slot_bytes_, PlainStrides(source)};
  }
  /// A segment whose first page others may overwrite.
  const SharedSegment& scratch() const { return segment_; }

  /// Maps the rings of the rank that introduced itself; false if they are not the ones it means.
  static bool map(const Introduction& introduction, SharedSegment& segment) {
    segment = SharedSegment(introduction.segment);
    return std::memcmp(segment.at(number_offset), &introduction.number, sizeof introduction.number) == 0;
  }

 private:
  static constexpr Index page_bytes = 4096;
  static constexpr Index number_offset = page_bytes / 2;  // in the scratch page: proves whose segment it is

  Index ring_bytes() const {
    const Index nbytes = static_cast<Index>(sizeof(Ring)) + slots_ * slot_bytes_;
    return ceil_div(nbytes, page_bytes) * page_bytes;
  }
  Index offset(Index ring) const { return page_bytes + ring_bytes() * ring; }
  /// All rings of a rank should stay in the cache of its core, beside what is copied: half of the second level.
  static Index most_ring_bytes() { return stream_threshold_bytes() / 8; }

  Index slot_bytes_ = Ring::line_bytes, slots_ = 1;  // slots per ring
  SharedSegment segment_;
  std::uint64_t number_ = 0;  // random
};

}  // namespace dace_redist
