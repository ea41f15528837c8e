// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "core/agreement.hpp"
#include "core/machine.hpp"
#include "trace/trace.hpp"
#include "transport/chunk.hpp"
#include "transport/joined_messages.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

/// A joined message in node-shared memory. The ranks that have parts in it copy these, from their sources or to their
/// targets, and its carrier moves it by MPI, once each in a transfer.
class JoinedBuffer {
 public:
  /// At the start of the buffer, behind which the message lies.
  struct State {
    alignas(cache_line_bytes) std::atomic<std::uint64_t> copied;  ///< times that a rank has copied its parts
    alignas(cache_line_bytes) std::atomic<std::uint64_t> moved;   ///< times that the carrier has moved the message
  };

  JoinedBuffer(char* start, const JoinedMessage& message)
      : state_(std::launder(reinterpret_cast<State*>(start))), ranks_(message.ranks), sent_(message.sent) {}

  char* at(Index offset) const { return reinterpret_cast<char*>(state_ + 1) + offset; }
  bool sent() const { return sent_; }

  /// Whether a rank may copy its parts in a transfer.
  /// \param transfer  counted from 1 on.
  bool may_copy(std::uint64_t transfer) const {
    return state_->moved.load(std::memory_order_acquire) == (sent_ ? transfer - 1 : transfer);
  }
  bool may_move(std::uint64_t transfer) const {
    return state_->copied.load(std::memory_order_acquire) == ranks_ * (sent_ ? transfer : transfer - 1);
  }
  /// Whether all ranks have done their parts in so many transfers.
  bool unused(std::uint64_t transfers) const { return sent_ ? may_copy(transfers + 1) : may_move(transfers + 1); }
  void note_copied() const { state_->copied.fetch_add(1, std::memory_order_release); }
  void note_moved() const { state_->moved.fetch_add(1, std::memory_order_release); }

  static Index nbytes(Index message_bytes) { return static_cast<Index>(sizeof(State)) + whole_lines(message_bytes); }

 private:
  State* state_;
  std::uint64_t ranks_;
  bool sent_;
};

/// Moves the joined messages in which this rank has parts.
///
/// Every rank packs its parts into the buffer of a pair of nodes. When all have, the carrier of the pair sends it to
/// the carrier of the other node, which receives it in a buffer there. Every rank unpacks its parts from that.
class JoinTransport final : public Transport {
 public:
  JoinTransport(const Link& link, Messages messages)
      : link_(link),
        in_flight_(link.options),
        separate_(make_packed(separate_link(link), messages)),
        messages_(std::move(messages)) {}

  ~JoinTransport() override {
    if (!memory_) return;
    std::vector<JoinedBuffer> buffers;
    for (const End& end : ends_)
      if (end.carried_bytes > 0) buffers.push_back(end.buffer);
    free_when(memory_, [buffers, transfers = transfer_number_] {
      return std::all_of(buffers.begin(), buffers.end(),
                         [transfers](const JoinedBuffer& buffer) { return buffer.unused(transfers); });
    });
  }

  void connect() override {
    const MPI_Comm node = link_.context.node_comm();
    std::vector<JoinedMessage> joined;
    Index memory = -1;
    std::vector<Index> memories;  // [partners] offsets in their arenas
    const std::exception_ptr thrown = caught([&] {
      joined = join_messages(link_.topology, link_.rank(), node, messages_);
      memories.resize(link_.topology.partners.size());
      memory = allocate(joined);
    });
    const bool joins = lowest_rank(link_.comm(), memory < 0) < 0;
    if (thrown) std::rethrow_exception(thrown);
    if (!joins) return;  // each message moves on its own
    check(MPI_Allgather(&memory, 1, MPI_INT64_T, memories.data(), 1, MPI_INT64_T, node), "MPI_Allgather");
    std::map<int, Index> next;  // by carrier: offset of its next buffer
    for (std::size_t p = 0; p < memories.size(); ++p) next[link_.topology.partners[p]] = memories[p];
    for (JoinedMessage& message : joined) {
      Index& offset = next.at(message.carrier);
      add_end(message, offset);
      offset += JoinedBuffer::nbytes(message.nbytes);
    }
    requests_.assign(end_of_.size(), MPI_REQUEST_NULL);
    completed_.resize(end_of_.size());
    connected_ = true;
    set_chunks();
  }

  void replan(Messages messages) override {
    separate_->replan(messages);
    messages_ = std::move(messages);
    if (connected_) set_chunks();
  }

  void begin(const Arrays& arrays, Pace pace) override {
    arrays_ = arrays;
    joins_ = connected_ && pace == Pace::attended;
    if (!joins_) return separate_->begin(arrays, pace);
    ++transfer_number_;
    open_ = 0;
    in_flight_.reset();
    for (End& end : ends_) {
      end.copies = true;
      end.moves = end.carried_bytes > 0;
      open_ += end.moves ? 2 : 1;
    }
    progress();
  }

  bool done() const override { return joins_ ? open_ == 0 : separate_->done(); }
  /// Each rank packs and unpacks its own parts; MPI moves buffers.
  Leaving leave() override { return joins_ ? Leaving::left : separate_->leave(); }
  bool at_rest() const override { return joins_ ? done() : separate_->at_rest(); }

  bool progress() override {
    if (!joins_) return separate_->progress();
    bool any = complete();
    for (std::size_t e = 0; e < ends_.size(); ++e) {
      End& end = ends_[e];
      if (end.copies && end.buffer.may_copy(transfer_number_)) {
        copy(end);
        any = true;
      }
      if (end.moves && end.buffer.may_move(transfer_number_) && may_send(end)) {
        start(end);
        any = true;
      }
    }
    return any;
  }

 private:
  /// This rank's part in a joined message.
  struct End {
    JoinedBuffer buffer;
    std::vector<JoinedPart> parts;
    std::vector<Chunk> chunks;  // [parts]
    Index carried_bytes;        // of the whole message; 0: another rank carries it
    int peer;
    std::size_t first_request;
    // In the transfer at hand, whether this rank has yet to copy its parts, and to start moving the message:
    bool copies = false, moves = false;
    std::size_t under_way = 0;  // requests
  };

  static Link separate_link(Link link) {
    ++link.tag;
    return link;
  }

  /// Allocates the buffers of the messages that this rank carries. \return their offset in its arena; -1 if that
  /// failed.
  Index allocate(const std::vector<JoinedMessage>& joined) {
    Index nbytes = 0;
    std::vector<Index> offsets;
    for (const JoinedMessage& message : joined) {
      if (message.carrier != link_.rank()) continue;
      offsets.push_back(nbytes);
      nbytes += JoinedBuffer::nbytes(message.nbytes);
    }
    if (offsets.empty()) return 0;
    try {
      memory_ = Arena::allocate(nbytes, false).bytes;
    } catch (const std::exception& error) {
      static std::atomic<bool> warned{false};
      warn_once(warned,
                "dace-redist: no node-shared memory (rank %d: %s); short messages between nodes are not joined\n",
                link_.rank(), error.what());
      return -1;
    }
    for (const Index offset : offsets) new (memory_ + offset) JoinedBuffer::State{};
    return Arena::own().offset_of(memory_);
  }

  /// \param offset  of the buffer in the arena of the carrier.
  void add_end(JoinedMessage& message, Index offset) {
    if (message.parts.empty()) return;
    const bool carries = message.carrier == link_.rank();
    char* const start = carries ? Arena::own().at(offset) : link_.context.arena_of(message.carrier)->at(offset);
    const Index pieces = carries ? ceil_div(message.nbytes, link_.options.max_message_bytes) : 0;
    const std::size_t first_request = end_of_.size();
    end_of_.insert(end_of_.end(), static_cast<std::size_t>(pieces), ends_.size());
    ends_.push_back({JoinedBuffer(start, message),
                     std::move(message.parts),
                     {},
                     carries ? message.nbytes : 0,
                     message.peer,
                     first_request});
  }

  void set_chunks() {
    std::map<int, const PeerMessage*> sent, received;  // by peer
    for (const PeerMessage& message : messages_.sends) sent[message.peer] = &message;
    for (const PeerMessage& message : messages_.receives) received[message.peer] = &message;
    for (End& end : ends_) {
      end.chunks.clear();
      for (const JoinedPart& part : end.parts) {
        const bool sends = end.buffer.sent();
        const PeerMessage& message = *(sends ? sent : received).at(part.peer);
        const auto side = sends ? Chunk::Side::sent : Chunk::Side::received;
        end.chunks.push_back(std::move(cut(message, link_.tensors, side, message.nbytes).front()));  // the only one
      }
    }
  }

  void copy(End& end) {
    for (std::size_t p = 0; p < end.parts.size(); ++p) {
      char* const packed = end.buffer.at(end.parts[p].offset);
      if (end.buffer.sent())
        end.chunks[p].pack(arrays_, packed, 1);
      else
        end.chunks[p].unpack(packed, arrays_, 1);
    }
    end.buffer.note_copied();
    end.copies = false;
    --open_;
  }

  static Index sent_bytes(const End& end) { return end.buffer.sent() ? end.carried_bytes : 0; }
  bool may_send(const End& end) const { return !end.buffer.sent() || in_flight_.admits(end.carried_bytes); }

  void start(End& end) {
    end.moves = false;
    in_flight_.add(sent_bytes(end));
    const Index max_bytes = link_.options.max_message_bytes;
    for (Index at = 0; at < end.carried_bytes; at += max_bytes) {
      const int count = static_cast<int>(std::min(end.carried_bytes - at, max_bytes));
      char* const bytes = end.buffer.at(at);
      MPI_Request* const request = &requests_[end.first_request + end.under_way++];
      if (end.buffer.sent()) {
        const trace::Span span("send", end.peer, count);
        check(MPI_Isend(bytes, count, MPI_BYTE, end.peer, link_.tag, link_.comm(), request), "MPI_Isend");
      } else {
        check(MPI_Irecv(bytes, count, MPI_BYTE, end.peer, link_.tag, link_.comm(), request), "MPI_Irecv");
      }
    }
  }

  /// Takes note of messages that have moved. \return whether there were any.
  bool complete() {
    const int count = test_some(requests_, completed_);
    for (int i = 0; i < count; ++i) {
      End& end = ends_[end_of_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)])]];
      if (--end.under_way > 0) continue;
      in_flight_.add(-sent_bytes(end));
      end.buffer.note_moved();
      --open_;
    }
    return count > 0;
  }

  Link link_;
  BytesInFlight in_flight_;
  std::unique_ptr<Transport> separate_;  // sends each message on its own
  Messages messages_;
  char* memory_ = nullptr;  // the buffers that this rank carries, in its arena
  bool connected_ = false;
  std::vector<End> ends_;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> end_of_;  // [requests]
  std::vector<int> completed_;       // [requests]

  // Of the transfer at hand:
  Arrays arrays_;
  bool joins_ = false;
  std::uint64_t transfer_number_ = 0;  // counted from 1 on
  std::size_t open_ = 0;               // copies and moves that are not done
};

}  // namespace

std::unique_ptr<Transport> make_joined(const Link& link, Messages messages) {
  return std::make_unique<JoinTransport>(link, std::move(messages));
}

}  // namespace dace_redist
