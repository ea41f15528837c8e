// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>
#include <vector>

#include "copy/buffer.hpp"
#include "core/machine.hpp"
#include "transport/chunk.hpp"
#include "transport/exchange_records.hpp"
#include "transport/pipeline.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

/// Cuts a message into its blocks, which need no buffers.
std::vector<Chunk> cut_into_blocks(const PeerMessage& message, const Tensors& tensors, Chunk::Side side,
                                   Index max_bytes) {
  std::vector<Chunk> chunks;
  for (MessageCutter cutter(message, tensors, max_bytes); !cutter.done();)
    chunks.emplace_back(message, cutter, tensors, side, 1, true);
  return chunks;
}

/// Chunks in main memory, which the processor packs and unpacks at once.
class ChunkLane final : public Lane {
 public:
  /// Of an unattended transfer all chunks are posted at once, up to so many bytes of packed chunks. The rest is posted
  /// when progress() is called.
  static constexpr Index max_posted_bytes = Index{64} << 20;

  ChunkLane() = default;
  ChunkLane(const Link& link, Chunk::Side side, int threads, Index depth)
      : link_(&link), sends_(side == Chunk::Side::sent), threads_(threads), depth_(depth) {}

  void add(std::vector<Chunk> message, Index step) {
    for (Chunk& chunk : message) {
      chunk_bytes_.push_back(chunk.packed() ? chunk.nbytes() : 0);
      most_bytes_ = std::max(most_bytes_, chunk_bytes_.back());
      chunks_.push_back(std::move(chunk));
      steps.push_back(step);
      sizes.push_back(chunks_.back().nbytes());
    }
  }

  std::size_t begin(const Arrays& arrays, Pace pace) {
    arrays_ = arrays;
    const auto all = static_cast<Index>(chunks_.size());
    Index slots = std::min(depth_, all);
    if (pace == Pace::unattended)
      slots = std::clamp(max_posted_bytes / std::max<Index>(1, whole_lines(most_bytes_)), slots, all);
    const auto count = static_cast<std::size_t>(slots);
    if (count + 1 == offsets_.size()) return count;
    lay_out(count, chunk_bytes_, cache_line_bytes);
    buffer_ = Buffer(slot_bytes());
    return count;
  }

  void copy(std::size_t number, std::size_t slot) {
    const Chunk& chunk = chunks_[number];
    if (!chunk.packed()) return;
    sends_ ? chunk.pack(arrays_, bytes(slot), threads_) : chunk.unpack(bytes(slot), arrays_, threads_);
  }

  void post(std::size_t number, std::size_t slot, MPI_Request* request) {
    Chunk& chunk = chunks_[number];
    sends_ ? chunk.send(arrays_, bytes(slot), link_->tag, link_->comm(), request)
           : chunk.receive(arrays_, bytes(slot), link_->tag, link_->comm(), request);
  }

  int lent_to(std::size_t number) const { return chunks_[number].packed() ? no_rank : chunks_[number].peer(); }

 private:
  char* bytes(std::size_t slot) const { return buffer_.at(offsets_[slot]); }

  const Link* link_ = nullptr;
  bool sends_ = true;
  int threads_ = 1;
  Index depth_ = 0, most_bytes_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<Index> chunk_bytes_;  // [chunks] in a slot
  Buffer buffer_;
  Arrays arrays_;
};

/// A pipeline between arrays in main memory.
///
/// A message whose blocks are contiguous in both arrays, and longer than chunks, is cut into its blocks: MPI then moves
/// them from array to array. Both ranks agree on it when the plan is made. Where a later array has other strides, a
/// datatype describes the block.
class ChunkTransport final : public Pipeline<ChunkLane> {
 public:
  ChunkTransport(const Link& link, const Cutting& cutting, Messages messages)
      : Pipeline(link, cutting.max_ahead), cutting_(cutting), messages_(std::move(messages)) {
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
    own_ = cut(messages.self, link_.tensors, Chunk::Side::kept, unlimited);
    set(sends_, receives_, messages.self);
  }

 private:
  using Peers = std::set<int>;

  ChunkLane lane(const std::vector<PeerMessage>& messages, Chunk::Side side, const Peers& in_blocks) const {
    ChunkLane made(link_, side, cutting_.threads, cutting_.depth);
    for (const PeerMessage& message : messages)
      made.add(in_blocks.count(message.peer)
                   ? cut_into_blocks(message, link_.tensors, side, link_.options.max_message_bytes)
                   : cut(message, link_.tensors, side, cutting_.chunk_bytes, cutting_.growth, cutting_.typed),
               message.step);
    return made;
  }

  void copy_self(const Arrays& arrays) override {
    for (const Chunk& own : own_) own.copy(arrays, cutting_.threads);
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

  Cutting cutting_;
  Messages messages_;                          // until connect()
  Peers sent_in_blocks_, received_in_blocks_;  // whose messages are cut into blocks
  ChunkLane sends_, receives_;
  std::vector<Chunk> own_;  // the self copy
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
