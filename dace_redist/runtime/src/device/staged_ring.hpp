// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Slots in pinned main memory from which ranks send; other ranks of the node copy from there.

#include <cstdint>

#include "device/device_objects.hpp"
#include "shm/peer_arena.hpp"

namespace dace_redist {

/// The place of a rank's slots in its arena, as other ranks of its node learn of it.
struct RingName {
  Index offset = 0, nbytes = 0;
};

/// This rank's slots, in its arena or in private memory. Memory of the arena is given back when all ranks that have
/// mapped it are done with it.
class StagedRing {
 public:
  /// \param shared  whether to allocate in the arena. \throws Error if it is too short.
  StagedRing(Device& device, Index nbytes, bool shared);
  ~StagedRing();
  StagedRing(const StagedRing&) = delete;
  StagedRing& operator=(const StagedRing&) = delete;

  char* at(Index offset) const { return slots_ + offset; }
  RingName name() const;
  /// Has the memory wait for so many ranks that have mapped it.
  void set_readers(std::int64_t readers) { readers_ = readers; }

 private:
  char* shared_ = nullptr;
  Index nbytes_ = 0;
  std::int64_t readers_ = 0;
  Pinned pinned_;
  PinnedBuffer private_;
  char* slots_ = nullptr;  // in either
};

/// The slots of another rank of the node, pinned here as well.
class MappedRing {
 public:
  MappedRing(Device& device, PeerArena& arena, const RingName& name);
  ~MappedRing();
  MappedRing(const MappedRing&) = delete;
  MappedRing& operator=(const MappedRing&) = delete;

  char* at(Index offset) const;

 private:
  char* start_;
  Pinned pinned_;
};

}  // namespace dace_redist
