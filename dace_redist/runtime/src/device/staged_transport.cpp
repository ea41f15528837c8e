// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "core/agreement.hpp"
#include "core/machine.hpp"
#include "device/device_transport.hpp"
#include "shm/arena.hpp"
#include "shm/array_allocator.hpp"
#include "shm/peer_arena.hpp"
#include "trace/trace.hpp"
#include "transport/exchange_records.hpp"
#include "transport/pipeline.hpp"

namespace dace_redist {
namespace {

constexpr Index slot_alignment = 256;  // for whole words of a kernel

/// Start of slots in an arena; the slots follow behind head_bytes().
struct RingHead {
  std::atomic<std::int64_t> readers;   ///< ranks that have mapped the slots
  std::atomic<std::int64_t> released;  ///< of these, ranks that are done with them

  /// [slots] of a slot that was lent to a receiver: whether it was given back
  std::atomic<std::int64_t>& given_back(std::size_t slot) {
    return reinterpret_cast<std::atomic<std::int64_t>*>(this + 1)[slot];
  }
  static Index head_bytes(std::size_t slots) {
    return round_up(static_cast<Index>(sizeof(RingHead) + slots * sizeof(std::int64_t)), slot_alignment);
  }
};

/// The place of slots in their owner's arena.
struct RingName {
  Index offset = -1, nbytes = 0;
};

/// The place of a chunk in its sender's ring, as MPI carries it to a receiver on the node.
struct SlotPlace {
  Index offset = 0;  ///< bytes, from the ring's head on
  std::size_t slot = 0;
};

/// Main memory, pinned as long as it is held.
DeviceHandle pinned(Device& device, const DeviceHandle& memory, Index nbytes) {
  return {memory.get(), [memory, pin = device.pin(memory.get(), nbytes)](void*) mutable { pin.reset(); }};
}

/// The slots that send in this rank's arena, and those of senders on its node.
class NodeRings {
 public:
  NodeRings(PlanDevice& device, const Link& link, const Messages& messages)
      : device_(device.get()),
        link_(link),
        receivers_(node_peers(messages.sends, link)),
        senders_(node_peers(messages.receives, link)) {}

  /// Makes the own ring, unless there is too little memory, or no receiver on the node. It is freed when all ranks that
  /// have mapped it are done with it.
  void make(std::size_t slots, Index nbytes) {
    if (receivers_.empty()) return;
    or_failure([&] {
      sweep_deferred();
      name_.nbytes = RingHead::head_bytes(slots) + nbytes;
      const DeviceHandle memory(new (Arena::allocate(name_.nbytes, false).bytes) RingHead{}, [](RingHead* head) {
        free_when(head, [head] { return head->released.load(std::memory_order_acquire) >= head->readers; });
      });
      own_ = pinned(device_, memory, name_.nbytes);
      name_.offset = Arena::own().offset_of(own_.get());
    });
  }

  /// Maps the rings of senders. No rank uses them if one failed to. Collective. \return what was thrown.
  std::exception_ptr map() {
    const std::exception_ptr thrown = caught([&] {
      const std::vector<RingName> names =
          exchange_records(link_, receivers_, std::vector<RingName>(receivers_.size(), name_), senders_);
      or_failure([&] {
        for (std::size_t s = 0; s < senders_.size(); ++s)
          if (names[s].offset >= 0) mapped_[senders_[s]] = mapped_ring(senders_[s], names[s]);
      });
    });
    if (thrown) link_.context.report_failure(link_.owner, message_of(thrown));  // to ranks that wait for this one
    const int failed = lowest_rank(link_.comm(), thrown || failure_);
    if (failed == link_.rank() && failure_) warn_fallback_once(*failure_);
    if (failed < 0 && own_) own()->readers = static_cast<std::int64_t>(receivers_.size());
    if (failed >= 0) mapped_.clear();
    lends_ = failed < 0;
    return thrown;
  }

  /// This rank's ring; null if it has none.
  RingHead* own() const { return static_cast<RingHead*>(own_.get()); }
  /// Whether a receiver takes chunks from the own ring.
  bool lends_to(int receiver) const {
    return lends_ && std::find(receivers_.begin(), receivers_.end(), receiver) != receivers_.end();
  }
  /// The ring of a sender; null if its chunks come by MPI.
  RingHead* of(int sender) const {
    const auto entry = mapped_.find(sender);
    return entry == mapped_.end() ? nullptr : static_cast<RingHead*>(entry->second.get());
  }

 private:
  template <class Work>
  void or_failure(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  DeviceHandle mapped_ring(int sender, const RingName& name) const {
    const DeviceHandle memory(reinterpret_cast<RingHead*>(link_.context.arena_of(sender)->at(name.offset)),
                              [](RingHead* head) { head->released.fetch_add(1, std::memory_order_release); });
    return pinned(device_, memory, name.nbytes);
  }

  Device& device_;
  const Link& link_;
  std::vector<int> receivers_, senders_;
  RingName name_;
  DeviceHandle own_;
  std::map<int, DeviceHandle> mapped_;  // by sender
  std::optional<Error> failure_;
  bool lends_ = false;
};

/// The place in the array, in bytes, of a chunk that moves by this one copy and lies there as it is sent; else -1.
Index place_in_array(Chunk::Side side, const std::vector<DeviceCopy>& copies, const ElementStep& step) {
  if (copies.size() != 1 || !CopyList().append(copies.front().block, step)) return -1;
  const StridedBlock& block = copies.front().block;
  return (side == Chunk::Side::sent ? block.source_offset : block.target_offset) * step.source_bytes;
}

/// Packs chunks into slots in main memory, or unpacks them. Where the array lies in main memory, the processor does so
/// at once.
///
/// Where it lies on the device, a kernel packs into a slot there, which is copied to the slot in main memory; the other
/// way round for unpacking. The slots take turns in two streams, so that kernels and copies of different chunks
/// overlap; received partial results have one stream, which keeps their order. Where a chunk is contiguous in the
/// array, the kernel is left out. An MPI that takes addresses on the device sends and receives the slots there.
class StagedLane final : public Lane {
 public:
  StagedLane(PlanDevice& device, Chunk::Side side, Memory memory, const Link& link, const Cutting& cutting,
             const NodeRings& rings, const std::vector<PeerMessage>& messages)
      : order_(device),
        side_(side),
        sends_(side == Chunk::Side::sent),
        memory_(memory),
        link_(link),
        cutting_(cutting),
        rings_(rings),
        one_stream_(!sends_ && link.tensors[0]->reduces) {
    set_messages(messages);
    lay_out(std::min(static_cast<std::size_t>(cutting.depth), chunks_.size()), sizes, slot_alignment);
    places_.resize(slots());
    if (memory_ == Memory::host) return;
    slots_ = DeviceBuffer(order_.get(), nbytes());
    for (DeviceHandle& stream : streams_) stream = order_.get().make_stream();
    for (std::size_t slot = 0; slot < slots(); ++slot) events_.push_back(order_.get().make_event());
  }

  /// Takes over messages of the same sizes, for another layout of the array.
  void set_messages(const std::vector<PeerMessage>& messages) {
    chunks_.clear();
    steps.clear();
    for (const PeerMessage& message : messages) add_chunks(message);
    sizes.clear();
    for (const StagedChunk& chunk : chunks_) sizes.push_back(chunk.nbytes);
  }
  std::size_t slots() const { return offsets_.size() - 1; }
  Index nbytes() const { return slot_bytes(); }
  /// Whether the processor uses the array.
  bool runs_at_once() const { return memory_ == Memory::host; }
  /// Whether MPI moves some chunks, between slots in main memory.
  bool needs_buffer() const {
    return !on_device_for_mpi() && std::any_of(chunks_.begin(), chunks_.end(),
                                               [this](const StagedChunk& chunk) { return !rings_.of(chunk.peer); });
  }
  /// Sets the slots in main memory.
  void set_buffer(char* bytes) { buffer_ = bytes; }
  /// The stream of a slot's chunks.
  Stream stream(std::size_t slot) const { return streams_[one_stream_ ? 0 : slot % 2].get(); }
  /// Orders work that the caller enqueues afterwards behind all that was started.
  void finish() {
    if (memory_ == Memory::device)
      for (const DeviceHandle& stream : streams_) order_.follow(stream.get());
  }

  std::size_t begin(const Arrays& arrays, Pace) {
    arrays_ = arrays;
    if (memory_ == Memory::device && arrays.sources)
      for (const DeviceHandle& stream : streams_) order_.get().wait(stream.get(), order_.started());
    return slots();
  }

  void copy(std::size_t number, std::size_t slot) {
    const StagedChunk& chunk = chunks_[number];
    char* const staged = this->staged(chunk.peer, slot);
    if (memory_ == Memory::host)
      return sends_ ? chunk.host[0].pack(arrays_, staged, cutting_.threads)
                    : chunk.host[0].unpack(staged, arrays_, cutting_.threads);
    const trace::Span span(sends_ ? "pack" : "unpack", chunk.peer, chunk.nbytes);
    Device& device = order_.get();
    const Stream stream = this->stream(slot);
    const Event event = events_[slot].get();
    char* const array = sends_ ? const_cast<char*>(arrays_.sources[0]) : arrays_.targets[0];  // sources are only read
    char* const in_slot = slots_.at(offsets_[slot]);
    char* const packed = chunk.kernel ? in_slot : array + chunk.place;  // on the device
    char* const message = staged ? staged : in_slot;
    if (sends_) {
      if (chunk.kernel) chunk.kernel->launch({array}, {in_slot}, stream);
      if (message != packed) device.copy(message, packed, chunk.nbytes, stream);
      return device.record(event, stream);
    }
    if (message != packed) device.copy(packed, message, chunk.nbytes, stream);
    const bool frees_slot_early = !device.known_to_mpi();  // otherwise MPI may receive the next chunk on the device
    if (frees_slot_early) device.record(event, stream);
    if (chunk.kernel) chunk.kernel->launch({in_slot}, {array}, stream);
    if (!frees_slot_early) device.record(event, stream);
  }

  bool copied(std::size_t slot) const { return memory_ == Memory::host || order_.get().completed(events_[slot].get()); }

  void post(std::size_t number, std::size_t slot, MPI_Request* request) {
    const auto& [peer, nbytes, host, kernel, place] = chunks_[number];
    const bool through_ring = this->through_ring(peer);
    void* bytes = moved(slot);
    if (through_ring) bytes = &places_[slot];
    const auto count = static_cast<int>(through_ring ? static_cast<Index>(sizeof(SlotPlace)) : nbytes);
    if (!sends_) return check(MPI_Irecv(bytes, count, MPI_BYTE, peer, link_.tag, link_.comm(), request), "MPI_Irecv");
    const trace::Span span("send", peer, nbytes);
    if (through_ring) {
      places_[slot] = {buffer_ + offsets_[slot] - reinterpret_cast<char*>(rings_.own()), slot};
      rings_.own()->given_back(slot).store(0, std::memory_order_relaxed);
    }
    check(MPI_Isend(bytes, count, MPI_BYTE, peer, link_.tag, link_.comm(), request), "MPI_Isend");
  }

  void give_back(std::size_t chunk, std::size_t slot) {
    if (RingHead* const ring = rings_.of(chunks_[chunk].peer))
      ring->given_back(places_[slot].slot).store(1, std::memory_order_release);
  }
  bool given_back(std::size_t chunk, std::size_t slot) const {
    return !rings_.lends_to(chunks_[chunk].peer) || rings_.own()->given_back(slot).load(std::memory_order_acquire) != 0;
  }

 private:
  struct StagedChunk {
    int peer;
    Index nbytes;
    std::vector<Chunk> host;             // one, if the array lies in main memory
    std::unique_ptr<CopyKernel> kernel;  // null if the array holds the chunk as the message does
    Index place = -1;                    // bytes in the array, in that case
  };

  void add_chunks(const PeerMessage& message) {
    const Tensor& tensor = *link_.tensors[0];
    const ElementStep step = sends_ ? tensor.steps.pack() : tensor.unpack_step(message);
    const auto add = [&](MessageCutter& cutter, Index max_bytes) {
      steps.push_back(message.step);
      StagedChunk& made = chunks_.emplace_back(StagedChunk{message.peer, 0, {}, nullptr});
      if (memory_ == Memory::host) {
        made.host.emplace_back(message, cutter, link_.tensors, side_, max_bytes, false);
        made.nbytes = made.host.front().nbytes();
        return;
      }
      std::vector<DeviceCopy> copies;
      made.nbytes = cutter.take(max_bytes, [&](Index displacement) {
        copies.push_back({packed_side(side_, cutter.part(), displacement / tensor.steps.message_bytes()), 0, 0});
      });
      made.place = place_in_array(side_, copies, step);
      if (made.place < 0) made.kernel = std::make_unique<CopyKernel>(order_.get(), copies, step);
    };
    each_chunk(message, link_.tensors, cutting_.chunk_bytes, cutting_.growth, add);
  }

  bool on_device_for_mpi() const { return memory_ == Memory::device && order_.get().known_to_mpi(); }
  bool through_ring(int peer) const { return sends_ ? rings_.lends_to(peer) : rings_.of(peer) != nullptr; }
  /// The bytes that MPI moves: those of the slot on the device, or in main memory.
  char* moved(std::size_t slot) const { return (on_device_for_mpi() ? slots_.at(0) : buffer_) + offsets_[slot]; }

  /// The slot in main memory that a chunk is copied to or from; null: MPI moves the one on the device.
  char* staged(int peer, std::size_t slot) const {
    if (RingHead* const ring = sends_ ? nullptr : rings_.of(peer))
      return reinterpret_cast<char*>(ring) + places_[slot].offset;
    return on_device_for_mpi() && !through_ring(peer) ? nullptr : buffer_ + offsets_[slot];
  }

  PlanDevice& order_;
  Chunk::Side side_;
  bool sends_;
  Memory memory_;
  const Link& link_;
  Cutting cutting_;
  const NodeRings& rings_;
  bool one_stream_;
  std::vector<StagedChunk> chunks_;
  char* buffer_ = nullptr;
  DeviceBuffer slots_;
  std::array<DeviceHandle, 2> streams_;
  std::vector<DeviceHandle> events_;  // [slots] after the last use of a slot's bytes
  std::vector<SlotPlace> places_;     // [slots] in the rings of senders
  Arrays arrays_;
};

class StagedTransport final : public Pipeline<StagedLane> {
 public:
  StagedTransport(PlanDevice& device, const Link& link, const TensorProblem& problem, const Cutting& cutting,
                  const Messages& messages, bool node_memory)
      : Pipeline(link, unlimited),
        order_(device),
        node_memory_(node_memory),
        rings_(device, link_, messages),
        sends_(device, Chunk::Side::sent, problem.source_memory, link_, cutting, rings_, messages.sends),
        receives_(device, Chunk::Side::received, problem.target_memory, link_, cutting, rings_, messages.receives) {
    set_self(messages.self);
  }

  /// Allocates the slots in main memory, and connects them with those of ranks of this node. Collective.
  /// \throws Error on every rank if one has no memory for the slots.
  void connect() override {
    all_or_none(link_.comm(), [&] {
      if (node_memory_) rings_.make(sends_.slots(), sends_.nbytes());
      if (!rings_.own()) sent_ = PinnedBuffer(order_.get(), sends_.nbytes());
      sends_.set_buffer(rings_.own() ? reinterpret_cast<char*>(rings_.own()) + RingHead::head_bytes(sends_.slots())
                                     : sent_.at(0));
    });
    const std::exception_ptr thrown = node_memory_ ? rings_.map() : nullptr;
    all_or_none(link_.comm(), [&] {
      if (thrown) std::rethrow_exception(thrown);
      if (receives_.needs_buffer()) received_ = PinnedBuffer(order_.get(), receives_.nbytes());
      receives_.set_buffer(received_.at(0));
    });
  }

  void replan(Messages messages) override {
    sends_.set_messages(messages.sends);
    receives_.set_messages(messages.receives);
    set_self(messages.self);
  }

 private:
  void set_self(const PeerMessage& self) {
    self_.reset();
    if (self.nbytes > 0) {
      std::vector<DeviceCopy> copies;
      for (const Block& block : self.blocks) copies.push_back({block.box, 0, 0});
      self_ = std::make_unique<CopyKernel>(order_.get(), copies, link_.tensors[0]->direct_step(self));
    }
    set(sends_, receives_, self);
  }

  bool arrays_ready() override {
    return !(sends_.runs_at_once() || receives_.runs_at_once()) || order_.get().completed(order_.started());
  }
  void copy_self(const Arrays& arrays) override {
    self_->launch({arrays.sources[0]}, {arrays.targets[0]}, receives_.stream(0));
  }
  void finish() override {
    sends_.finish();
    receives_.finish();
  }

  PlanDevice& order_;
  bool node_memory_;
  NodeRings rings_;
  StagedLane sends_, receives_;
  PinnedBuffer sent_, received_;      // slots that are not in a ring
  std::unique_ptr<CopyKernel> self_;  // null without a self copy
};

}  // namespace

std::unique_ptr<Transport> make_staged(PlanDevice& device, const Link& link, const TensorProblem& problem,
                                       const Cutting& cutting, const Messages& messages, bool node_memory) {
  return std::make_unique<StagedTransport>(device, link, problem, cutting, messages, node_memory);
}

}  // namespace dace_redist
