// Strategy Shared: ranks of one node hand packed pieces over through small rings in memory that they share.
#pragma once

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "dace_redist/plan.hpp"
#include "dace_redist/shared_memory.hpp"
#include "dace_redist/slot.hpp"

namespace dace_redist {

/// One ring per pair of ranks, in a segment of the sender: the sender packs a piece into a free slot, the receiver
/// unpacks it from there while it is still in the cache. Source rows that feed several messages are packed for all of
/// them before the next row is read.
///
/// Extra memory per rank: depth * slot_bytes for each rank it sends to. Cannot deadlock: a rank that waits for a free
/// slot empties the slots others filled for it.
class SharedPlan final : public Plan {
 private:
  using Counter = std::atomic<std::uint64_t>;
  static_assert(Counter::is_always_lock_free, "counters in shared memory must be lock-free");

  /// Begin of a ring in shared memory: pieces that were ever written and read; the slots follow.
  struct RingHead {
    alignas(64) Counter written;
    alignas(64) Counter read;
  };

  /// One direction of one pair of ranks.
  struct Channel {
    int peer = 0;
    std::vector<PackedChunk> pieces;
    std::size_t next = 0;     // piece of the current exchange
    std::uint64_t total = 0;  // pieces of all exchanges
    RingHead* head = nullptr;
    Index slot_bytes = 0;

    char* slot(Index depth) const {
      return reinterpret_cast<char*>(head + 1) +
             static_cast<Index>(total % static_cast<std::uint64_t>(depth)) * slot_bytes;
    }
  };

  /// Where a sender's ring lies.
  struct RingName {
    SegmentName segment;
    Index offset = 0;
  };

  void prepare() override {
    refill(sends_, schedule().sends, pack_plan);
    refill(receives_, schedule().receives, unpack_plan);
    Index received = 0;
    for (const Message& message : schedule().receives) received += message.count * element_bytes();
    stream_ = received >= stream_threshold_bytes();
    order_pieces();
  }

  template <class MakePlan>
  void refill(std::vector<Channel>& channels, const std::vector<Message>& messages, MakePlan make_plan) {
    channels.resize(messages.size());
    for (std::size_t c = 0; c < messages.size(); ++c) {
      channels[c].peer = static_cast<int>(messages[c].peer);
      channels[c].pieces.clear();
      for (const Chunk& chunk : cut(messages[c], options().slot_bytes / element_bytes()))
        channels[c].pieces.push_back(make_plan(chunk, element_bytes()));
      channels[c].slot_bytes = ceil_div(std::max(options().slot_bytes, element_bytes()), 64) * 64;
    }
  }

  /// The order in which pieces are packed: along the source array, each message in its own order.
  void order_pieces() {
    std::size_t count = 0;
    for (Channel& channel : sends_) {
      count += channel.pieces.size();
      channel.next = 0;
    }
    order_.clear();
    while (order_.size() < count) {
      std::size_t first = sends_.size();
      for (std::size_t c = 0; c < sends_.size(); ++c)
        if (sends_[c].next < sends_[c].pieces.size() &&
            (first == sends_.size() || next_offset(sends_[c]) < next_offset(sends_[first])))
          first = c;
      ++sends_[first].next;
      order_.push_back(first);
    }
  }

  static Index next_offset(const Channel& channel) { return channel.pieces[channel.next].copies[0].source_offset; }

  void connect() override {
    check(MPI_Comm_split_type(comm(), MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, node_.put()), "MPI_Comm_split_type");
    all_or_none(comm(), [this] { check_node(); });
    all_or_none(comm(), [this] { make_rings(); });
    std::vector<RingName> sent(sends_.size()), received(receives_.size());
    std::vector<MPI_Request> requests;
    for (std::size_t c = 0; c < receives_.size(); ++c)
      post_receive(reinterpret_cast<char*>(&received[c]), sizeof(RingName), receives_[c].peer, requests);
    for (std::size_t c = 0; c < sends_.size(); ++c) {
      sent[c] = {segment_.name(), ring_bytes() * static_cast<Index>(c)};
      post_send(reinterpret_cast<const char*>(&sent[c]), sizeof(RingName), sends_[c].peer, requests);
    }
    wait_all(requests);
    all_or_none(comm(), [&] { map_rings(received); });
  }

  /// \throws Error if a partner is on another node.
  void check_node() const {
    Group everyone, here;
    check(MPI_Comm_group(comm(), everyone.put()), "MPI_Comm_group");
    check(MPI_Comm_group(node_.get(), here.put()), "MPI_Comm_group");
    for (const std::vector<Channel>* channels : {&sends_, &receives_})
      for (const Channel& channel : *channels) {
        int there = MPI_UNDEFINED;
        check(MPI_Group_translate_ranks(everyone.get(), 1, &channel.peer, here.get(), &there),
              "MPI_Group_translate_ranks");
        if (there == MPI_UNDEFINED)
          throw Error(text("strategy Shared moves between ranks of one node, but ranks ", rank(), " and ", channel.peer,
                           " are on different nodes; take another strategy"));
      }
  }

  Index ring_bytes() const {
    return static_cast<Index>(sizeof(RingHead)) + options().depth * (sends_.empty() ? 0 : sends_[0].slot_bytes);
  }

  void make_rings() {
    segment_ = SharedSegment(ring_bytes() * static_cast<Index>(sends_.size()));
    for (std::size_t c = 0; c < sends_.size(); ++c)
      sends_[c].head = new (segment_.at(ring_bytes() * static_cast<Index>(c))) RingHead{};
  }

  void map_rings(const std::vector<RingName>& names) {
    for (std::size_t c = 0; c < receives_.size(); ++c) {
      partners_.emplace_back(names[c].segment);
      receives_[c].head = reinterpret_cast<RingHead*>(partners_.back().at(names[c].offset));
    }
  }

  void exchange(const char* source, char* target) override {
    for (Channel& channel : sends_) channel.next = 0;
    for (Channel& channel : receives_) channel.next = 0;
    std::size_t packed = 0, open = receives_.size();
    bool copied = false;
    Backoff backoff;
    while (packed < order_.size() || open > 0 || !copied) {
      const bool sent = packed < order_.size() && pack_next(sends_[order_[packed]], source);
      packed += sent;
      const bool received = unpack_arrived(target, open);
      if (sent || received) {
        backoff.reset();
      } else if (!copied) {
        copy_self(source, target);
        copied = true;
      } else {
        backoff.wait();
      }
    }
  }

  /// Packs a piece if its ring has a free slot.
  bool pack_next(Channel& channel, const char* source) const {
    const std::uint64_t in_flight = channel.total - channel.head->read.load(std::memory_order_acquire);
    if (in_flight >= static_cast<std::uint64_t>(options().depth)) return false;
    for (const CopyBlock& block : channel.pieces[channel.next].copies)
      copy(block, source, channel.slot(options().depth), false);
    ++channel.next;
    channel.head->written.store(++channel.total, std::memory_order_release);
    return true;
  }

  /// Unpacks what has arrived; counts down `open` at the last piece of a message.
  bool unpack_arrived(char* target, std::size_t& open) {
    bool any = false;
    for (Channel& channel : receives_) {
      if (channel.next == channel.pieces.size() ||
          channel.head->written.load(std::memory_order_acquire) == channel.total)
        continue;
      for (const CopyBlock& block : channel.pieces[channel.next].copies)
        copy(block, channel.slot(options().depth), target, stream_);
      channel.head->read.store(++channel.total, std::memory_order_release);
      open -= ++channel.next == channel.pieces.size();
      any = true;
    }
    return any;
  }

  std::vector<Channel> sends_, receives_;
  std::vector<std::size_t> order_;  // [pieces sent] index in sends_
  bool stream_ = false;             // whether what is received exceeds the cache
  SharedSegment segment_;           // rings of this rank's sends
  std::vector<SharedSegment> partners_;
  Communicator node_;
};

/// What the node's `Shared` implementation calls.
inline void exchange_shared(Slot<SharedPlan>& slot, const Arguments& arguments, const void* source, void* target) {
  slot.run(arguments, source, target);
}

}  // namespace dace_redist
