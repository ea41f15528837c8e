// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <vector>

#include "core/agreement.hpp"
#include "device/staged_side.hpp"
#include "shm/arena.hpp"
#include "shm/array_allocator.hpp"
#include "shm/peer_arena.hpp"
#include "trace/trace.hpp"
#include "transport/exchange_records.hpp"

namespace dace_redist {
namespace {

/// Start of slots in an arena; they follow behind head_bytes.
struct RingHead {
  std::atomic<std::int64_t> readers;   ///< ranks that have mapped the slots
  std::atomic<std::int64_t> released;  ///< of these, ranks that are done with them
};
constexpr Index head_bytes = 256;

/// Main memory, pinned as long as it is held.
DeviceHandle pinned(Device& device, const DeviceHandle& memory, Index nbytes) {
  return {memory.get(), [memory, pin = device.pin(memory.get(), nbytes)](void*) mutable { pin.reset(); }};
}

/// Slots in this rank's arena, which are freed when all ranks that have mapped them are done with them.
DeviceHandle make_ring(Device& device, Index nbytes) {
  sweep_deferred();
  const DeviceHandle memory(new (Arena::allocate(head_bytes + nbytes, false).bytes) RingHead{}, [](RingHead* head) {
    free_when(head, [head] { return head->released.load(std::memory_order_acquire) >= head->readers; });
  });
  return pinned(device, memory, head_bytes + nbytes);
}

/// The place of slots in their owner's arena.
struct RingName {
  Index offset = -1, nbytes = 0;
};

/// The slots of another rank.
DeviceHandle map_ring(Device& device, const PeerArena& arena, const RingName& name) {
  const DeviceHandle memory(reinterpret_cast<RingHead*>(arena.at(name.offset)),
                            [](RingHead* head) { head->released.fetch_add(1, std::memory_order_release); });
  return pinned(device, memory, name.nbytes);
}

class StagedTransport final : public Transport {
 public:
  StagedTransport(PlanDevice& device, const Link& link, const TensorProblem& problem, const Staging& staging,
                  const Messages& messages, bool node_memory)
      : order_(device),
        link_(link),
        node_memory_(node_memory),
        sends_(device, Chunk::Side::sent, problem.source_memory, link.tensors, staging, messages.sends),
        receives_(device, Chunk::Side::received, problem.target_memory, link.tensors, staging, messages.receives),
        receivers_(node_peers(messages.sends, link)),
        senders_(node_peers(messages.receives, link)),
        requests_(sends_.slots() + 2 * receives_.slots(), MPI_REQUEST_NULL),
        completed_(requests_.size()),
        sent_slots_(sends_.slots()),
        sent_places_(sends_.slots()),
        received_places_(receives_.slots()) {
    set_self(messages.self);
  }

  /// Allocates the slots in main memory, and connects them with those of ranks of this node. Collective.
  /// \throws Error on every rank if one has no memory for the slots.
  void connect() override {
    Device& device = order_.get();
    all_or_none(link_.comm(), [&] {
      if (node_memory_ && !receivers_.empty()) or_failure([&] { shared_ = make_ring(device, sends_.nbytes()); });
      if (!shared_) private_ = PinnedBuffer(device, sends_.nbytes());
      slots_ = shared_ ? static_cast<char*>(shared_.get()) + head_bytes : private_.at(0);
    });
    const std::exception_ptr thrown = node_memory_ ? map_rings() : nullptr;
    all_or_none(link_.comm(), [&] {
      if (thrown) std::rethrow_exception(thrown);
      const bool by_mpi = std::any_of(receives_.chunks().begin(), receives_.chunks().end(),
                                      [this](const auto& chunk) { return !mapped(chunk.peer); });
      if (by_mpi && !receives_.direct(0)) buffer_ = PinnedBuffer(device, receives_.nbytes());
    });
  }

  void replan(Messages messages) override {
    sends_.set_messages(messages.sends);
    receives_.set_messages(messages.receives);
    set_self(messages.self);
  }

  void begin(const Arrays& arrays, Pace) override {
    arrays_ = arrays;
    finished_ = false;
    packing_.clear();
    unpacking_.clear();
    sent_ = received_ = next_ = 0;
    self_done_ = !self_;
    arrived_.assign(link_.tensors[0]->reduces ? receives_.chunks().size() : 0, none);
    free_requests_.clear();
    for (std::size_t request = 0; request < sends_.slots(); ++request) free_requests_.push_back(request);
    sends_.begin(arrays);
    receives_.begin(arrays);
    for (std::size_t slot = 0; slot < receives_.slots(); ++slot) receive_next(slot);
    waits_ = sends_.runs_at_once() || receives_.runs_at_once();
    if (!waits_) pack_first();
  }

  bool progress() override {
    if (finished_) return false;
    bool any = waits_;
    if (waits_) {
      if (!order_.get().completed(order_.started())) return false;
      waits_ = false;
      pack_first();
    }
    any |= send_packed();
    any |= release_unpacked();
    any |= test_requests();
    if (sent_ < sends_.chunks().size() || received_ < receives_.chunks().size()) return any;
    sends_.finish();
    receives_.finish();
    finished_ = true;
    return true;
  }

  bool done() const override { return finished_; }

 private:
  /// The place of a chunk in the sender's slots, and the number of the slot.
  struct SlotPlace {
    Index offset = 0, slot = 0;
  };
  static constexpr std::size_t none = ~std::size_t{0};

  template <class Work>
  void or_failure(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  /// Maps the slots of senders on this node. No rank uses them if one failed to. Collective. \return what was thrown.
  std::exception_ptr map_rings() {
    const std::exception_ptr thrown = caught([&] {
      const RingName own =
          shared_ ? RingName{Arena::own().offset_of(shared_.get()), head_bytes + sends_.nbytes()} : RingName{};
      const std::vector<RingName> names =
          exchange_records(link_, receivers_, std::vector<RingName>(receivers_.size(), own), senders_);
      or_failure([&] {
        for (std::size_t s = 0; s < senders_.size(); ++s)
          if (names[s].offset >= 0)
            mapped_[senders_[s]] = map_ring(order_.get(), *link_.context.arena_of(senders_[s]), names[s]);
      });
    });
    if (thrown) link_.context.report_failure(link_.owner, message_of(thrown));  // to ranks that wait for this one
    const int failed = lowest_rank(link_.comm(), thrown || failure_);
    if (failed == link_.rank() && failure_) warn_fallback_once(*failure_);
    if (failed < 0 && shared_)
      static_cast<RingHead*>(shared_.get())->readers = static_cast<std::int64_t>(receivers_.size());
    if (failed >= 0) mapped_.clear();
    shares_ = failed < 0;
    return thrown;
  }

  void set_self(const PeerMessage& self) {
    self_.reset();
    if (self.nbytes == 0) return;
    std::vector<DeviceCopy> copies;
    for (const Block& block : self.blocks) copies.push_back({block.box, 0, 0});
    self_ = std::make_unique<CopyKernel>(order_.get(), copies, link_.tensors[0]->direct_step(self.summand));
    const auto behind = std::find_if(receives_.chunks().begin(), receives_.chunks().end(),
                                     [&](const auto& chunk) { return chunk.step > self.step; });
    self_before_ = static_cast<std::size_t>(behind - receives_.chunks().begin());
  }

  void pack_first() {
    for (std::size_t slot = 0; slot < sends_.slots(); ++slot) pack_next(slot);
    unpack_in_order();
  }

  void pack_next(std::size_t slot) {
    if (!sends_.take_next(slot)) return;
    packing_.push_back(slot);
    sends_.start(slot, sends_directly(slot) ? nullptr : slots_ + sends_.offset(slot));
  }

  bool send_packed() {
    bool any = false;
    for (; !packing_.empty() && sends_.copied(packing_.front()); any = true) {
      send(packing_.front());
      packing_.pop_front();
    }
    return any;
  }

  void send(std::size_t slot) {
    const int peer = sends_.chunk(slot).peer, tag = link_.tag;
    const Index nbytes = sends_.chunk(slot).nbytes;
    const trace::Span span("send", peer, nbytes);
    MPI_Request& request = requests_[free_requests_.back()];
    Index& freed = sent_slots_[free_requests_.back()];
    free_requests_.pop_back();
    if (!sends_by_node(peer)) {
      freed = static_cast<Index>(slot);
      const char* const bytes = sends_directly(slot) ? sends_.direct(slot) : slots_ + sends_.offset(slot);
      return check(MPI_Isend(bytes, static_cast<int>(nbytes), MPI_BYTE, peer, tag, link_.comm(), &request),
                   "MPI_Isend");
    }
    sent_places_[slot] = {sends_.offset(slot), static_cast<Index>(slot)};
    check(MPI_Irecv(&freed, sizeof freed, MPI_BYTE, peer, tag + 1, link_.comm(), &request), "MPI_Irecv");
    MPI_Request sent = MPI_REQUEST_NULL;
    check(MPI_Isend(&sent_places_[slot], sizeof(SlotPlace), MPI_BYTE, peer, tag, link_.comm(), &sent), "MPI_Isend");
    check(MPI_Request_free(&sent), "MPI_Request_free");  // the acknowledgement proves its arrival
  }

  void receive_next(std::size_t slot) {
    if (!receives_.take_next(slot)) return;
    const int peer = receives_.chunk(slot).peer;
    const bool by_node = mapped(peer) != nullptr;
    void* const bytes = by_node ? static_cast<void*>(&received_places_[slot]) : receive_slot(slot);
    const auto nbytes = static_cast<int>(by_node ? sizeof(SlotPlace) : receives_.chunk(slot).nbytes);
    check(MPI_Irecv(bytes, nbytes, MPI_BYTE, peer, link_.tag, link_.comm(), &requests_[sends_.slots() + slot]),
          "MPI_Irecv");
  }

  bool test_requests() {
    const int count = test_some(requests_, completed_);
    for (int i = 0; i < count; ++i) {
      auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
      if (request < sends_.slots()) {
        ++sent_;
        free_requests_.push_back(request);
        pack_next(static_cast<std::size_t>(sent_slots_[request]));
        continue;
      }
      request -= sends_.slots();
      if (request < receives_.slots())
        take(request);
      else
        receive_again(request - receives_.slots());
    }
    return count > 0;
  }

  /// A chunk, or its place, has arrived in a slot.
  void take(std::size_t slot) {
    if (arrived_.empty()) return unpack(slot);
    arrived_[receives_.chunk_in(slot)] = slot;
    unpack_in_order();
  }

  void unpack_in_order() {
    for (;; ++next_) {
      if (!self_done_ && next_ == self_before_) {
        self_->launch({arrays_.sources[0]}, {arrays_.targets[0]}, receives_.stream(0));
        self_done_ = true;
      }
      if (next_ >= arrived_.size() || arrived_[next_] == none) return;
      unpack(arrived_[next_]);
    }
  }

  void unpack(std::size_t slot) {
    char* staged = mapped(receives_.chunk(slot).peer);
    if (staged)
      staged += received_places_[slot].offset;
    else if (!receives_.direct(slot))
      staged = receive_slot(slot);
    receives_.start(slot, staged);
    unpacking_.push_back(slot);
  }

  /// Ends the use of slots whose bytes were copied to the array, or to the device.
  bool release_unpacked() {
    const auto copied = std::stable_partition(unpacking_.begin(), unpacking_.end(),
                                              [this](std::size_t slot) { return !receives_.copied(slot); });
    const std::vector<std::size_t> released(copied, unpacking_.end());
    unpacking_.erase(copied, unpacking_.end());
    for (const std::size_t slot : released) {
      const int peer = receives_.chunk(slot).peer;
      if (!mapped(peer))
        receive_again(slot);
      else
        check(MPI_Isend(&received_places_[slot].slot, sizeof(Index), MPI_BYTE, peer, link_.tag + 1, link_.comm(),
                        &requests_[sends_.slots() + receives_.slots() + slot]),
              "MPI_Isend");
    }
    return !released.empty();
  }

  void receive_again(std::size_t slot) {
    ++received_;
    receive_next(slot);
  }

  bool sends_by_node(int peer) const {
    return shares_ && std::find(receivers_.begin(), receivers_.end(), peer) != receivers_.end();
  }

  /// Whether MPI sends from the slot on the device.
  bool sends_directly(std::size_t slot) const {
    return !sends_by_node(sends_.chunk(slot).peer) && sends_.direct(slot) != nullptr;
  }

  /// The bytes that MPI receives: those of the slot on the device, or in main memory.
  char* receive_slot(std::size_t slot) const {
    char* const direct = receives_.direct(slot);
    return direct ? direct : buffer_.at(receives_.offset(slot));
  }

  /// The mapped slots of a sender; null if its chunks come by MPI.
  char* mapped(int sender) const {
    const auto entry = mapped_.find(sender);
    return entry == mapped_.end() ? nullptr : static_cast<char*>(entry->second.get()) + head_bytes;
  }

  PlanDevice& order_;
  const Link link_;
  bool node_memory_;
  StagedSide sends_, receives_;
  std::vector<int> receivers_, senders_;  // on this node
  std::optional<Error> failure_;          // of node-shared memory
  bool shares_ = false;                   // whether ranks of the node have mapped each other's slots
  DeviceHandle shared_;                   // the slots that send, in the arena
  PinnedBuffer private_;                  // or these
  char* slots_ = nullptr;                 // in either
  PinnedBuffer buffer_;                   // of the slots that receive
  std::map<int, DeviceHandle> mapped_;    // by sender on this node
  std::unique_ptr<CopyKernel> self_;      // null without a self copy
  std::size_t self_before_ = 0;           // received chunks that are reduced before it

  // Of the transfer at hand:
  Arrays arrays_;
  // Of sent chunks and the acknowledgements that they wait for, in any order; of the slots that receive, and of the
  // acknowledgements that they send.
  std::vector<MPI_Request> requests_;
  std::vector<int> completed_;                            // [requests]
  std::vector<std::size_t> free_requests_;                // of sent chunks
  std::vector<Index> sent_slots_;                         // [sending slots] by request: the slot that becomes free
  std::vector<SlotPlace> sent_places_, received_places_;  // [sending slots], [receiving slots]
  std::deque<std::size_t> packing_;      // slots in the order of their chunks, which the receivers expect
  std::vector<std::size_t> unpacking_;   // slots in use
  std::vector<std::size_t> arrived_;     // [received chunks] of partial results: slot of those that wait for their turn
  std::size_t sent_ = 0, received_ = 0;  // chunks
  std::size_t next_ = 0;                 // chunk to be reduced
  bool self_done_ = true;
  bool waits_ = false;  // for PlanDevice::started(), before this rank uses an array in main memory
  bool finished_ = true;
};

}  // namespace

std::unique_ptr<Transport> make_staged(PlanDevice& device, const Link& link, const TensorProblem& problem,
                                       const Staging& staging, const Messages& messages, bool node_memory) {
  return std::make_unique<StagedTransport>(device, link, problem, staging, messages, node_memory);
}

}  // namespace dace_redist
