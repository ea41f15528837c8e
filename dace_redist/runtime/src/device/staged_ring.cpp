// SPDX-License-Identifier: BSD-3-Clause
#include "device/staged_ring.hpp"

#include <atomic>
#include <new>

#include "shm/arena.hpp"
#include "shm/deferred_free.hpp"

namespace dace_redist {
namespace {

/// Start of a ring in the arena.
struct RingHead {
  static constexpr Index nbytes = 256;

  std::atomic<std::int64_t> released;  ///< ranks that are done with the ring
};

}  // namespace

StagedRing::StagedRing(Device& device, Index nbytes, bool shared) : nbytes_(nbytes) {
  sweep_deferred();
  if (nbytes == 0) return;
  if (!shared) {
    private_ = PinnedBuffer(device, nbytes);
    slots_ = private_.at(0);
    return;
  }
  nbytes_ += RingHead::nbytes;
  shared_ = Arena::own().allocate(nbytes_, false).bytes;
  new (shared_) RingHead{};
  slots_ = shared_ + RingHead::nbytes;
  try {
    pinned_ = pin(device, shared_, nbytes_);
  } catch (...) {
    Arena::free(shared_);
    throw;
  }
}

StagedRing::~StagedRing() {
  if (!shared_) return;
  pinned_ = Pinned();
  free_when(shared_, [head = reinterpret_cast<RingHead*>(shared_), readers = readers_] {
    return head->released.load(std::memory_order_acquire) >= readers;
  });
}

RingName StagedRing::name() const { return shared_ ? RingName{Arena::own().offset_of(shared_), nbytes_} : RingName{}; }

MappedRing::MappedRing(Device& device, PeerArena& arena, const RingName& name)
    : start_(arena.at(name.offset)), pinned_(pin(device, start_, name.nbytes)) {}

MappedRing::~MappedRing() {
  pinned_ = Pinned();
  reinterpret_cast<RingHead*>(start_)->released.fetch_add(1, std::memory_order_release);
}

char* MappedRing::at(Index offset) const { return start_ + RingHead::nbytes + offset; }

}  // namespace dace_redist
