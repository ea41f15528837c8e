// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A message between two ranks of a node: its state in shared memory, and what one rank keeps of it.
///
/// docs/architecture.md shows the states of a message in a transfer, and the counter by which the sender or the
/// receiver causes each transition. A message of up to max_eager_bytes is staged at once. A receiver refuses where the
/// system does not let it map (pull) or read the sources, at most once in a transfer. The side that does not copy polls
/// `finished` (push, pull, read) or the piece counters (staged).

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "copy/copy.hpp"
#include "copy/run_list.hpp"
#include "core/machine.hpp"
#include "transport/copy_choice.hpp"
#include "transport/message.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

enum class Protocol : std::uint64_t { undecided, staged, push, pull, read };

/// Where an array lies, as its rank tells a partner for one transfer.
struct SharedArray {
  std::int64_t offset = -1;    ///< bytes, in the arena; -1: in private memory
  std::uintptr_t address = 0;  ///< in its process
  Index ndim = 0;
  std::array<Index, max_block_dims> strides{};  ///< [ndim] elements

  void set(const void* array, const LocalLayout& layout, const Arena* arena);
  bool has_layout(const LocalLayout& layout) const;
  LocalLayout layout() const { return {{strides.begin(), strides.begin() + ndim}}; }
};

/// One direction of a pair of ranks, in the sender's arena. Numbers of transfers and pieces only grow. Each counter has
/// one writer, and those of one side have cache lines of their own.
struct ChannelState {
  using Counter = std::atomic<std::uint64_t>;
  static_assert(Counter::is_always_lock_free, "counters in shared memory must be lock-free");
  static constexpr std::uint64_t protocols = 8;  ///< more than there are

  // By the sender, before it is published:
  int receiver;
  Index slots, cached_slots;  ///< of the ring, and of these in use where ordinary stores write them
  Index slot_bytes, part_bytes;
  Index handshake_offset, ring_offset;  ///< bytes, from this state on; handshake_offset 0: the message is eager

  alignas(cache_line_bytes) Counter written;  ///< by the sender: staged pieces
  Counter sender_left;                        ///< by the sender: 1 when it has left a transfer that failed
  alignas(cache_line_bytes) Counter read;     ///< by the receiver: staged pieces
  Counter receiver_left;                      ///< by the receiver: as sender_left
  Counter released;                           ///< by the receiver: 1 when its plan is freed
};

/// How sender and receiver agree on the protocol of a message that is not eager. The arrays of the tensors follow it:
/// targets, then sources.
struct Handshake {
  using Counter = ChannelState::Counter;

  alignas(cache_line_bytes) Counter entered;   ///< by the receiver: transfer for which its targets hold
  Index receiver_copy_bytes;                   ///< bytes that the receiver copies if it copies all it receives
  std::array<Stay, 2> receiver_stays;          ///< [transfer % 2] of the receiver, in the transfer before that
  Counter refused;                             ///< by the receiver: transfer in which it cannot read
  alignas(cache_line_bytes) Counter decision;  ///< by the sender: transfer * protocols + protocol
  Index slots;                                 ///< by the sender, before its decision: in use if the message is staged
  alignas(cache_line_bytes) Counter finished;  ///< by the side that copies: transfer that is done

  SharedArray* targets() { return reinterpret_cast<SharedArray*>(this + 1); }
  SharedArray* sources(std::size_t tensors) { return targets() + tensors; }

  /// The sender's choice for a transfer; undecided if it has made none yet.
  Protocol decided(std::uint64_t transfer) const {
    const std::uint64_t number = decision.load(std::memory_order_acquire);
    return number / ChannelState::protocols == transfer ? static_cast<Protocol>(number % ChannelState::protocols)
                                                        : Protocol::undecided;
  }
};

/// Bytes from the start of an array on.
struct ByteRange {
  Index begin = 0, end = 0;
};

/// A message as one of its two ranks has planned it.
struct PlannedMessage {
  PeerMessage message;
  Index part_bytes;  ///< the largest piece
  MessageCutter cutter;
  std::vector<CopyList> direct{}, packed{};  ///< [groups] array to array, and array to or from a slot
  std::vector<ByteRange> reach{};            ///< [tensors] bytes of the partner's arrays from first to last element
  std::size_t shape = 0;                     ///< number of the first channel of this side with equally shaped blocks
  Index min_run = 0;                         ///< bytes: the shortest run that is contiguous on both sides, and copied
  Index max_source_run = 0;                  ///< bytes: the longest run that is contiguous in the source, of a sender
  /// Of a sender, whether the receiver should copy where either rank could. The side that copies goes through its own
  /// array in order; the runs that are then scattered, on the other side, should be the longer ones.
  bool pulls_better = false;
  bool timed = false;     ///< whether transfers are timed, to choose how the message is copied
  bool may_read = false;  ///< whether the receiver may read it out of private memory, if that takes less time
};

/// Where a message passes through shared memory, as long as the plan lives.
struct ChannelPlace {
  ChannelState* state = nullptr;
  Handshake* handshake = nullptr;
  char* ring = nullptr;
  Index slots = 1, slot_bytes = 0;
  PeerArena* arena = nullptr;   ///< of the partner
  std::uint64_t total = 0;      ///< pieces of all transfers that went through the ring
  std::uint64_t read_seen = 0;  ///< of a sender: pieces that it knows to be read
};

/// How far a message has come in the transfer at hand.
struct ChannelProgress {
  Protocol protocol = Protocol::undecided;
  bool done = true;
  bool told = false;                            ///< whether something was stored for the partner since it was last rung
  bool streams = false;                         ///< whether staged pieces are packed with non-temporal stores
  std::vector<char*> partner{};                 ///< [tensors] the partner's arrays, while they can be addressed
  std::vector<std::shared_ptr<char>> mapped{};  ///< [tensors] what is mapped of the partner's private arrays
};

/// A message between this rank and a partner.
class Channel : public PlannedMessage, public ChannelPlace, public ChannelProgress {
 public:
  Channel(PeerMessage new_message, const Tensors& tensors, bool sends, Index new_part_bytes);

  /// Takes over a message of the same size.
  void set(PeerMessage new_message, const Tensors& tensors, bool sends);

  void begin();
  /// Of a sender: copies the message by a protocol in this transfer, and tells the receiver.
  /// \param new_streams  whether a staged message is packed with non-temporal stores.
  void decide(Protocol new_protocol, bool new_streams, std::uint64_t transfer);
  bool eager() const { return handshake == nullptr; }
  bool is_self() const { return state == nullptr; }

  /// Finds the partner's arrays in this process, where they lie in its arena or can be mapped.
  /// \return whether all that the message needs can be addressed.
  bool address_partner(const SharedArray* arrays);
  /// Whether the kernel lets this rank read the partner's arrays, of those of which elements move.
  bool can_read(const SharedArray* arrays) const;

  char* slot(std::uint64_t piece) const {
    return ring + static_cast<Index>(piece % static_cast<std::uint64_t>(slots)) * slot_bytes;
  }
};

/// Numbers the channels by the shape of their blocks.
void compare_shapes(std::vector<Channel>& channels);

/// What a rank exchanges within its node.
struct NodeTraffic {
  Index receivers = 0;     ///< of its messages
  bool in_order = false;   ///< partial results: pieces must not depend on the rank
  bool both_ways = false;  ///< it receives at least half as many bytes as it sends
};

/// The largest piece of the self copy: as of messages of as many bytes, with which it is copied or reduced.
Index self_part_bytes(Index nbytes, const NodeTraffic& traffic, const Options& options);

/// The channels that a rank sends, in one allocation of its arena that partners find by the numbers of context and
/// plan. It is given back when all receivers have freed their plans, too.
class ChannelMemory {
 public:
  /// Allocates the state and the ring of each message, and publishes them. \throws Error if there is too little memory.
  ChannelMemory(const Link& link, const std::vector<PeerMessage>& sends, const NodeTraffic& traffic);
  ChannelMemory(const ChannelMemory&) = delete;
  ChannelMemory& operator=(const ChannelMemory&) = delete;
  ~ChannelMemory();

  /// The state of a sent message.
  ChannelState* state(std::size_t send) const { return states_[send]; }
  /// All ranks have made theirs: partners will look for it.
  void keep_published() { published_for_good_ = true; }

  /// The state of a message that `sender` sends to `receiver`, in its mapped arena. \throws Error if there is none.
  static ChannelState* find(const Link& link, PeerArena& arena, int receiver);

 private:
  std::uint64_t context_;
  std::int64_t plan_;
  char* memory_ = nullptr;
  std::vector<ChannelState*> states_;
  bool published_for_good_ = false;
};

}  // namespace dace_redist
