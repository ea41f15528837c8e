// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "copy/buffer.hpp"
#include "core/cache_line.hpp"
#include "transport/chunk.hpp"
#include "transport/exchange_records.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

/// How messages are cut and paced.
struct Cutting {
  int threads = 1;
  bool typed = false;
  Index chunk_bytes = unlimited;
  Index depth = unlimited;  ///< chunks in flight per direction
  double growth = 1.0;
  Index max_ahead = unlimited;  ///< chunks that a rank sends ahead of those it has received
};

/// Cuts a message into its blocks, which need no buffers.
std::vector<Chunk> cut_into_blocks(const PeerMessage& message, const Tensors& tensors, Chunk::Side side,
                                   Index max_bytes) {
  std::vector<Chunk> chunks;
  for (MessageCutter cutter(message, tensors, max_bytes); !cutter.done();)
    chunks.emplace_back(message, cutter, tensors, side, 1, true);
  return chunks;
}

/// One direction: its chunks in order, and the slots of a buffer that they pass through.
class Lane {
 public:
  /// Of an unattended transfer all chunks are posted at once, up to so many bytes of packed chunks. The rest is posted
  /// when progress() is called.
  static constexpr Index max_posted_bytes = Index{64} << 20;

  void add(std::vector<Chunk> message, Index step) {
    for (Chunk& chunk : message) {
      slot_bytes_ = std::max(slot_bytes_, buffer_bytes(chunk));
      chunks.push_back(std::move(chunk));
      steps.push_back(step);
    }
  }

  /// Allocates the slots of a transfer. A slot for each chunk is no larger than the chunk.
  void begin(Pace pace, Index depth) {
    const auto all = static_cast<Index>(chunks.size());
    Index slots = std::min(depth, all);
    if (pace == Pace::unattended) slots = std::clamp(max_posted_bytes / std::max<Index>(1, slot_bytes_), slots, all);
    posted = done = 0;
    if (slots == static_cast<Index>(chunk_in.size())) return;
    chunk_in.assign(static_cast<std::size_t>(slots), 0);
    offsets_.clear();
    Index nbytes = 0;
    for (std::size_t slot = 0; slot < chunk_in.size(); ++slot) {
      offsets_.push_back(nbytes);
      nbytes += slots == all ? buffer_bytes(chunks[slot]) : slot_bytes_;
    }
    buffer_ = Buffer(nbytes);
  }

  std::size_t slots() const { return chunk_in.size(); }
  char* slot(std::size_t index) const { return buffer_.at(offsets_[index]); }
  bool finished() const { return done == chunks.size(); }

  std::vector<Chunk> chunks;
  std::vector<Index> steps;           // [chunks] of their messages
  std::size_t posted = 0, done = 0;   // chunks of the transfer at hand
  std::vector<std::size_t> chunk_in;  // [slots]

 private:
  static Index buffer_bytes(const Chunk& chunk) { return chunk.packed() ? whole_lines(chunk.nbytes()) : 0; }

  Buffer buffer_;
  Index slot_bytes_ = 0;
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
/// A message whose blocks are contiguous in both arrays, and longer than chunks, is cut into its blocks: MPI then moves
/// them from array to array. Both ranks agree on it when the plan is made. Where a later array has other strides, a
/// datatype describes the block.
///
/// Partial results are unpacked in the order of the chunks, which is that of the reduction.
class ChunkTransport final : public Transport {
 public:
  ChunkTransport(const Link& link, const Cutting& cutting, Messages messages)
      : link_(link), cutting_(cutting), messages_(std::move(messages)), in_order_(reduce(link.tensors)) {
    cutting_.chunk_bytes = std::min(cutting.chunk_bytes, link.options.max_message_bytes);
    replan(messages_);
  }

  void connect() override {
    agree_on_blocks();
    if (!sent_in_blocks_.empty() || !received_in_blocks_.empty()) replan(messages_);
    messages_ = {};
  }

  void replan(Messages messages) override {
    sends_ = lane(messages.sends, Chunk::Side::sent, sent_in_blocks_);
    receives_ = lane(messages.receives, Chunk::Side::received, received_in_blocks_);
    set_received_before();
    own_ = cut(messages.self, link_.tensors, Chunk::Side::kept, unlimited);
    own_before_ = static_cast<std::size_t>(
        std::lower_bound(receives_.steps.begin(), receives_.steps.end(), messages.self.step) - receives_.steps.begin());
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
    send_next();
    if (in_order_) return unpack_in_order();
    copy_own();
  }

  bool progress() override {
    const int count = test_some(requests_, completed_);
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
      if (request < receives_.slots()) {
        take(request);
      } else {
        ++sends_.done;
        free_slots_.push_back(request - receives_.slots());
      }
      send_next();
    }
    return count > 0;
  }

  bool done() const override { return sends_.finished() && receives_.finished() && self_done_; }

 private:
  static constexpr std::size_t no_slot = ~std::size_t{0};
  using Peers = std::set<int>;

  Lane lane(const std::vector<PeerMessage>& messages, Chunk::Side side, const Peers& in_blocks) const {
    Lane made;
    for (const PeerMessage& message : messages)
      made.add(in_blocks.count(message.peer)
                   ? cut_into_blocks(message, link_.tensors, side, link_.options.max_message_bytes)
                   : cut(message, link_.tensors, side, cutting_.chunk_bytes, cutting_.growth, cutting_.typed),
               message.step);
    return made;
  }

  /// Tells the peers of long messages whether their blocks are contiguous in this rank's array.
  void agree_on_blocks() {
    if (cutting_.chunk_bytes >= link_.options.max_message_bytes) return;
    std::vector<int> to, from;
    std::vector<char> contiguous;
    const auto add = [&](const std::vector<PeerMessage>& messages, Chunk::Side side, std::vector<int>& partners) {
      for (const PeerMessage& message : messages) {
        if (message.nbytes <= cutting_.chunk_bytes) continue;
        const std::vector<Chunk> blocks =
            cut_into_blocks(message, link_.tensors, side, link_.options.max_message_bytes);
        partners.push_back(message.peer);
        contiguous.push_back(
            static_cast<Index>(blocks.size()) * cutting_.chunk_bytes < message.nbytes &&
            std::all_of(blocks.begin(), blocks.end(), [](const Chunk& block) { return block.in_place(); }));
      }
    };
    add(messages_.sends, Chunk::Side::sent, to);
    add(messages_.receives, Chunk::Side::received, from);
    // of each pair of ranks, about the message from the first to the second before that from the second to the first
    std::vector<int> told = to, heard = from;
    told.insert(told.end(), from.begin(), from.end());
    heard.insert(heard.end(), to.begin(), to.end());
    const std::vector<char> theirs = exchange_records(link_, told, contiguous, heard);
    for (std::size_t i = 0; i < to.size(); ++i)
      if (contiguous[i] && theirs[from.size() + i]) sent_in_blocks_.insert(to[i]);
    for (std::size_t i = 0; i < from.size(); ++i)
      if (contiguous[to.size() + i] && theirs[i]) received_in_blocks_.insert(from[i]);
  }

  /// Before a transfer. Allocates what it takes, unless the transfer before was of equal pace.
  void reset(Pace pace) {
    sends_.begin(pace, cutting_.depth);
    receives_.begin(pace, cutting_.depth);
    requests_.assign(receives_.slots() + sends_.slots(), MPI_REQUEST_NULL);
    completed_.resize(requests_.size());
    free_slots_.reserve(sends_.slots() + sends_.chunks.size());
    free_slots_.resize(sends_.slots());
    std::iota(free_slots_.begin(), free_slots_.end(), std::size_t{0});
    next_free_ = 0;
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
    chunk.receive(arrays_, receives_.slot(slot), link_.tag, link_.comm(), &requests_[slot]);
  }

  /// Sends the chunks that have a slot, and that have been waited for if the transfer is attended.
  void send_next() {
    while (next_free_ < free_slots_.size() && sends_.posted < sends_.chunks.size() &&
           (pace_ == Pace::unattended || receives_.done >= received_before_[sends_.posted])) {
      const std::size_t slot = free_slots_[next_free_++];
      Chunk& chunk = sends_.chunks[sends_.posted++];
      if (chunk.packed()) chunk.pack(arrays_, sends_.slot(slot), cutting_.threads);
      chunk.send(arrays_, sends_.slot(slot), link_.tag, link_.comm(), &requests_[receives_.slots() + slot]);
    }
  }

  void copy_own() {
    for (const Chunk& own : own_) own.copy(arrays_, cutting_.threads);
    self_done_ = true;
  }

  /// A chunk has arrived in a slot.
  void take(std::size_t slot) {
    if (!in_order_) return unpack(slot);
    arrived_[receives_.chunk_in[slot]] = slot;
    unpack_in_order();
  }

  void unpack(std::size_t slot) {
    const Chunk& chunk = receives_.chunks[receives_.chunk_in[slot]];
    if (chunk.packed()) chunk.unpack(receives_.slot(slot), arrays_, cutting_.threads);
    ++receives_.done;
    receive_next(slot);
  }

  void unpack_in_order() {
    for (;;) {
      if (!self_done_ && receives_.done == own_before_) copy_own();
      if (receives_.finished() || arrived_[receives_.done] == no_slot) break;
      unpack(arrived_[receives_.done]);
    }
  }

  Link link_;
  Cutting cutting_;
  Messages messages_;                          // until connect()
  Peers sent_in_blocks_, received_in_blocks_;  // whose messages are cut into blocks
  Lane sends_, receives_;
  std::vector<std::size_t> received_before_;  // [sent chunks]
  bool in_order_;                             // partial results
  std::vector<Chunk> own_;                    // the self copy
  std::size_t own_before_ = 0;                // of partial results: received chunks that are reduced before it

  // Of the transfer at hand:
  Arrays arrays_;
  Pace pace_ = Pace::attended;
  std::vector<MPI_Request> requests_;  // receive slots, then send slots
  std::vector<int> completed_;         // [requests]
  // Of sends, first come, first served: a slot may be no larger than its own chunk. Those before next_free_ are in use.
  std::vector<std::size_t> free_slots_;
  std::size_t next_free_ = 0;
  std::vector<std::size_t> arrived_;  // [received chunks] slot of those that wait for their turn
  bool self_done_ = true;
};

}  // namespace

std::unique_ptr<Transport> make_packed(const Link& link, Messages messages) {
  return std::make_unique<ChunkTransport>(link, Cutting{link.threads()}, std::move(messages));
}

std::unique_ptr<Transport> make_threaded(const Link& link, Messages messages) {
  const auto ranks = static_cast<std::int64_t>(link.topology.partners.size());
  return std::make_unique<ChunkTransport>(link, Cutting{link.threads(threads_of_rank(ranks))}, std::move(messages));
}

std::unique_ptr<Transport> make_datatype(const Link& link, Messages messages) {
  return std::make_unique<ChunkTransport>(link, Cutting{link.threads(), true}, std::move(messages));
}

std::unique_ptr<Transport> make_pipelined(const Link& link, Messages messages) {
  // measured: with 4 to 32 links are idle where ranks send unequal amounts, with 1000 packets are dropped now and then
  constexpr Index max_ahead = 64;
  const Options& options = link.options;
  const Cutting chunks{link.threads(), false, options.chunk_bytes, options.depth, options.growth, max_ahead};
  return std::make_unique<ChunkTransport>(link, chunks, std::move(messages));
}

}  // namespace dace_redist
