// SPDX-License-Identifier: BSD-3-Clause
#include "transport/chunk_transport.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "core/cache_line.hpp"
#include "transport/chunk.hpp"

namespace dace_redist {
namespace {

constexpr Index unlimited = std::numeric_limits<Index>::max() / 4;

/// How messages are cut and paced.
struct Cutting {
  Index chunk_bytes = unlimited;
  Index depth = unlimited;  ///< chunks in flight per direction
  double growth = 1.0;
  Index max_ahead = unlimited;  ///< chunks that a rank sends ahead of those it has received
  bool typed = false;
  int threads = 1;
};

/// One direction: its chunks in order, and the slots of a buffer that they pass through.
class Lane {
 public:
  /// Of an unattended transfer all chunks are posted at once, up to so many bytes of packed chunks. The rest is posted
  /// when progress() is called.
  static constexpr Index max_posted_bytes = Index{64} << 20;

  void fill(const std::vector<PeerMessage>& messages, const Tensors& tensors, Chunk::Side side,
            const Cutting& cutting) {
    chunks.clear();
    steps.clear();
    Index slot_bytes = 0;
    for (const PeerMessage& message : messages) {
      for (Chunk& chunk : cut(message, tensors, side, cutting.chunk_bytes, cutting.growth, cutting.typed)) {
        if (chunk.packed()) slot_bytes = std::max(slot_bytes, whole_lines(chunk.nbytes()));
        chunks.push_back(std::move(chunk));
        steps.push_back(message.step);
      }
    }
    slot_bytes_ = slot_bytes;
    attended_slots_ = std::min<Index>(cutting.depth, static_cast<Index>(chunks.size()));
    buffer_ = Buffer();
    buffer_slots_ = 0;
  }

  /// Allocates the slots of a transfer. A slot for each chunk is no larger than the chunk.
  void begin(Pace pace) {
    Index slots = attended_slots_;
    if (pace == Pace::unattended)
      slots = std::clamp(max_posted_bytes / std::max<Index>(1, slot_bytes_), slots, static_cast<Index>(chunks.size()));
    posted = done = 0;
    if (slots == buffer_slots_) return;
    buffer_slots_ = slots;
    offsets_.assign(static_cast<std::size_t>(slots), 0);
    Index nbytes = 0;
    const bool slot_per_chunk = slots == static_cast<Index>(chunks.size());
    for (std::size_t slot = 0; slot < offsets_.size(); ++slot) {
      offsets_[slot] = nbytes;
      if (!slot_per_chunk)
        nbytes += slot_bytes_;
      else if (chunks[slot].packed())
        nbytes += whole_lines(chunks[slot].nbytes());
    }
    buffer_ = Buffer(nbytes);
    chunk_in.assign(offsets_.size(), 0);
  }

  std::size_t slots() const { return offsets_.size(); }
  char* slot(std::size_t index) const { return buffer_.at(offsets_[index]); }
  bool finished() const { return done == chunks.size(); }

  std::vector<Chunk> chunks;
  std::vector<Index> steps;           // [chunks] of their messages
  std::size_t posted = 0, done = 0;   // chunks of the transfer at hand
  std::vector<std::size_t> chunk_in;  // [slots]

 private:
  Buffer buffer_;
  Index slot_bytes_ = 0, attended_slots_ = 0, buffer_slots_ = 0;
  std::vector<Index> offsets_;  // [slots] bytes
};

/// Moves chunks, a number of them in flight per direction.
///
/// Cannot deadlock: both sides go through their chunks by step, see Messages. Of all chunks that are not done take the
/// one of the lowest step: all before it are done on both sides, so both have a free slot for it, or have posted it,
/// and its sender has received what it waits for.
///
/// An attended pipeline sends no more than a few chunks ahead of what it has received in the same steps. Otherwise
/// ranks get out of step, several send to one at the same time, and where its link is the limit, packets are dropped.
///
/// Partial results are unpacked in the order of the chunks, which is that of the reduction.
class ChunkTransport final : public Transport {
 public:
  ChunkTransport(const Link& link, const Cutting& cutting, Messages messages)
      : comm_(link.comm()), tag_(link.tag), tensors_(&link.tensors), cutting_(cutting) {
    cutting_.chunk_bytes = std::min(cutting.chunk_bytes, link.options.max_message_bytes);
    replan(std::move(messages));
  }

  void replan(Messages messages) override {
    in_order_ = std::any_of(tensors_->begin(), tensors_->end(), [](const auto& tensor) { return tensor->reduces; });
    sends_.fill(messages.sends, *tensors_, Chunk::Side::sent, cutting_);
    receives_.fill(messages.receives, *tensors_, Chunk::Side::received, cutting_);
    set_received_before();
    own_.set(in_order_ ? messages.self : PeerMessage{}, *tensors_);
    own_before_ = static_cast<std::size_t>(
        std::lower_bound(receives_.steps.begin(), receives_.steps.end(), own_.step()) - receives_.steps.begin());
    reset(Pace::attended);  // so that a run allocates nothing
    sends_.done = sends_.chunks.size();
    receives_.done = receives_.chunks.size();
    self_done_ = true;
  }

  void begin(const Arrays& arrays, Pace pace) override {
    arrays_ = arrays;
    pace_ = pace;
    reset(pace);
    for (std::size_t slot = 0; slot < receives_.slots(); ++slot) receive_next(slot);
    for (std::size_t slot = 0; slot < sends_.slots(); ++slot) send_next(slot);
    unpack_in_order();
  }

  bool progress() override {
    const int count = test_some(requests_, completed_);
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
      if (request < receives_.slots()) {
        take(request);
      } else {
        ++sends_.done;
        send_next(request - receives_.slots());
      }
    }
    return count > 0;
  }

  bool done() const override { return sends_.finished() && receives_.finished() && self_done_; }

 private:
  static constexpr std::size_t no_slot = ~std::size_t{0};

  /// Before a transfer. Allocates what it takes, unless the transfer before was of equal pace.
  void reset(Pace pace) {
    sends_.begin(pace);
    receives_.begin(pace);
    requests_.assign(receives_.slots() + sends_.slots(), MPI_REQUEST_NULL);
    completed_.resize(requests_.size());
    waiting_slots_.clear();
    next_waiting_ = 0;
    waiting_slots_.reserve(sends_.slots() + sends_.chunks.size());
    arrived_.assign(in_order_ ? receives_.chunks.size() : 0, no_slot);
    self_done_ = own_.empty();
  }

  /// Counts, for each sent chunk, the chunks that must be received before: those of lower steps, and as many of its own
  /// step, less those that a rank may be ahead.
  void set_received_before() {
    received_before_.assign(sends_.chunks.size(), 0);
    const std::vector<Index>&sent = sends_.steps, &received = receives_.steps;
    for (std::size_t s = 0; s < sent.size(); ++s) {
      const auto [first, last] = std::equal_range(received.begin(), received.end(), sent[s]);
      const auto in_step = std::lower_bound(sent.begin(), sent.end(), sent[s]) - sent.begin();
      const Index before = std::min(static_cast<Index>(s) - in_step, static_cast<Index>(last - first));
      received_before_[s] =
          static_cast<std::size_t>(std::max<Index>(0, first - received.begin() + before - cutting_.max_ahead));
    }
  }

  void receive_next(std::size_t slot) {
    if (receives_.posted == receives_.chunks.size()) return;
    receives_.chunk_in[slot] = receives_.posted;
    Chunk& chunk = receives_.chunks[receives_.posted++];
    chunk.receive(arrays_, receives_.slot(slot), tag_, comm_, &requests_[slot]);
  }

  void send_next(std::size_t slot) {
    if (sends_.posted == sends_.chunks.size()) return;
    if (pace_ == Pace::attended && receives_.done < received_before_[sends_.posted])
      return waiting_slots_.push_back(slot);
    Chunk& chunk = sends_.chunks[sends_.posted++];
    if (chunk.packed()) chunk.pack(arrays_, sends_.slot(slot), cutting_.threads);
    chunk.send(arrays_, sends_.slot(slot), tag_, comm_, &requests_[receives_.slots() + slot]);
  }

  /// A chunk has arrived in a slot.
  void take(std::size_t slot) {
    if (in_order_) {
      arrived_[receives_.chunk_in[slot]] = slot;
      return unpack_in_order();
    }
    unpack(slot);
    send_waiting();
  }

  void unpack(std::size_t slot) {
    const Chunk& chunk = receives_.chunks[receives_.chunk_in[slot]];
    if (chunk.packed()) chunk.unpack(receives_.slot(slot), arrays_, cutting_.threads);
    ++receives_.done;
    receive_next(slot);
  }

  void unpack_in_order() {
    if (!in_order_) return;
    for (;;) {
      if (!self_done_ && receives_.done == own_before_) {
        own_.reduce(arrays_, cutting_.threads);
        self_done_ = true;
      }
      if (receives_.finished() || arrived_[receives_.done] == no_slot) break;
      unpack(arrived_[receives_.done]);
    }
    send_waiting();
  }

  /// Goes on with the slots that waited for a chunk to be received.
  void send_waiting() {
    while (next_waiting_ < waiting_slots_.size() && sends_.posted < sends_.chunks.size() &&
           receives_.done >= received_before_[sends_.posted])
      send_next(waiting_slots_[next_waiting_++]);
  }

  MPI_Comm comm_;
  int tag_;
  const Tensors* tensors_;
  Cutting cutting_;
  Lane sends_, receives_;
  std::vector<std::size_t> received_before_;  // [sent chunks]
  bool in_order_ = false;
  OwnSummand own_;              // of partial results
  std::size_t own_before_ = 0;  // received chunks that are reduced before it

  // Of the transfer at hand:
  Arrays arrays_;
  Pace pace_ = Pace::attended;
  std::vector<MPI_Request> requests_;  // receive slots, then send slots
  std::vector<int> completed_;         // [requests]
  // Of sends, for chunks to be received: first come, first served, as a slot may be no larger than its own chunk.
  std::vector<std::size_t> waiting_slots_;
  std::size_t next_waiting_ = 0;
  std::vector<std::size_t> arrived_;  // [received chunks] slot of those that wait for their turn
  bool self_done_ = true;
};

int openmp_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

}  // namespace

std::unique_ptr<Transport> make_packed(const Link& link, Messages messages) {
  Cutting whole;
  whole.threads = link.threads();
  return std::make_unique<ChunkTransport>(link, whole, std::move(messages));
}

std::unique_ptr<Transport> make_threaded(const Link& link, Messages messages) {
  Cutting whole;
  whole.threads = link.threads(openmp_threads());
  return std::make_unique<ChunkTransport>(link, whole, std::move(messages));
}

std::unique_ptr<Transport> make_datatype(const Link& link, Messages messages) {
  Cutting whole;
  whole.typed = true;
  whole.threads = link.threads();
  return std::make_unique<ChunkTransport>(link, whole, std::move(messages));
}

std::unique_ptr<Transport> make_pipelined(const Link& link, Messages messages) {
  Cutting chunks;
  chunks.chunk_bytes = link.options.chunk_bytes;
  chunks.depth = link.options.depth;
  chunks.growth = link.options.growth;
  chunks.max_ahead = 4;  // measured: with 2 links are idle now and then, with 16 packets are dropped
  chunks.threads = link.threads();
  return std::make_unique<ChunkTransport>(link, chunks, std::move(messages));
}

}  // namespace dace_redist
