// SPDX-License-Identifier: BSD-3-Clause
#include "transport/join_transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "core/agreement.hpp"
#include "core/cache_line.hpp"
#include "shm/deferred_free.hpp"
#include "trace/trace.hpp"
#include "transport/chunk.hpp"
#include "transport/chunk_transport.hpp"
#include "transport/join_routes.hpp"

namespace dace_redist {
namespace {

/// A buffer in node-shared memory that some ranks write and others read, once each in a transfer. Nobody writes before
/// all have read the previous contents, and nobody reads before all have written.
class JoinedBuffer {
 public:
  /// At the start of the buffer.
  struct State {
    alignas(cache_line_bytes) std::atomic<std::uint64_t> written;  ///< times that a rank has written its part
    alignas(cache_line_bytes) std::atomic<std::uint64_t> read;     ///< times that a rank has read its part
  };

  /// \param start  of the state, behind which the bytes lie.
  /// \param writes  whether this rank writes to it; else it reads.
  JoinedBuffer(char* start, std::size_t writers, std::size_t readers, bool writes)
      : state_(std::launder(reinterpret_cast<State*>(start))), writers_(writers), readers_(readers), writes_(writes) {}

  char* at(Index offset) const { return reinterpret_cast<char*>(state_ + 1) + offset; }

  /// Whether this rank may do its part in a transfer.
  /// \param transfer  counted from 1 on.
  bool ready(std::uint64_t transfer) const {
    return writes_ ? state_->read.load(std::memory_order_acquire) == (transfer - 1) * readers_
                   : state_->written.load(std::memory_order_acquire) == transfer * writers_;
  }

  /// Whether all ranks have done their parts in so many transfers.
  bool unused(std::uint64_t transfers) const {
    return state_->read.load(std::memory_order_acquire) == transfers * readers_;
  }

  /// This rank has done its part.
  void done() const { (writes_ ? state_->written : state_->read).fetch_add(1, std::memory_order_release); }

  static Index nbytes(Index message_bytes) { return static_cast<Index>(sizeof(State)) + whole_lines(message_bytes); }

 private:
  State* state_;
  std::uint64_t writers_, readers_;
  bool writes_;
};

/// Moves the joined messages in which this rank has parts.
///
/// Every rank packs its parts into the buffer of a pair of nodes. When all have, the carrier of the pair sends it to
/// the carrier of the other node, which receives it in a buffer there. Every rank unpacks its parts from that.
class JoinTransport final : public Transport {
 public:
  JoinTransport(const Link& link, Messages messages)
      : link_(link), separate_(make_packed(separate_link(link), messages)), messages_(std::move(messages)) {}
  ~JoinTransport() override;

  void connect() override;

  void replan(Messages messages) override {
    separate_->replan(messages);
    messages_ = std::move(messages);
    if (connected_) set_parts();
  }

  void begin(const Arrays& arrays, Pace pace) override {
    arrays_ = arrays;
    joins_ = connected_ && pace == Pace::attended;
    if (!joins_) return separate_->begin(arrays, pace);
    ++transfer_number_;
    for (auto& list : copies_)
      for (Copies& copies : list) copies.open = true;
    for (Transfer& transfer : transfers_) transfer.started = false;
    open_ = copies_[0].size() + copies_[1].size() + transfers_.size();
    if (open_ > 0) progress();
  }

  bool done() const override { return joins_ ? open_ == 0 : separate_->done(); }

  bool progress() override {
    if (!joins_) return separate_->progress();
    bool any = copy_ready(JoinedRoutes::sending);
    for (Transfer& transfer : transfers_)
      if (!transfer.started && transfer.buffer.ready(transfer_number_)) {
        start(transfer);
        any = true;
      }
    if (under_way_ > 0) any |= complete();
    any |= copy_ready(JoinedRoutes::receiving);
    return any;
  }

 private:
  /// The parts of this rank in one joined message.
  struct Copies {
    JoinedBuffer buffer;
    std::vector<std::pair<Chunk, Index>> parts;  // and their offsets in the joined message, in bytes
    bool open;                                   // in the transfer at hand
  };
  /// A joined message that this rank carries.
  struct Transfer {
    JoinedBuffer buffer;
    Index nbytes;
    int peer;
    bool sends;
    std::size_t first_request;
    std::size_t open;  // requests of the transfer at hand
    bool started;
  };
  struct Place {
    std::size_t copies;
    Index offset;  // bytes, in the joined message
  };

  static Link separate_link(Link link) {
    ++link.tag;
    return link;
  }

  void allocate(JoinedRoutes& routes);
  void add_ends(JoinedRoutes& routes, JoinedRoutes::Direction direction);
  void set_parts();
  bool copy_ready(JoinedRoutes::Direction direction);
  void start(Transfer& transfer);
  bool complete();

  Link link_;
  std::unique_ptr<Transport> separate_;  // sends each message on its own
  Messages messages_;
  char* memory_ = nullptr;  // the buffers that this rank carries, in its arena
  bool connected_ = false;
  Index piece_bytes_ = 1;
  std::array<std::map<int, Place>, 2> places_;  // by direction and peer
  std::array<std::vector<Copies>, 2> copies_;   // by direction
  std::vector<Transfer> transfers_;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> transfer_of_;  // [requests]
  std::vector<int> completed_;            // [requests]

  // Of the transfer at hand:
  Arrays arrays_;
  bool joins_ = false;
  std::uint64_t transfer_number_ = 0;  // counted from 1 on
  std::size_t open_ = 0;               // copies and transfers that are not done
  std::size_t under_way_ = 0;          // requests
};

JoinTransport::~JoinTransport() {
  if (!memory_) return;
  std::vector<JoinedBuffer> buffers;
  for (const Transfer& transfer : transfers_) buffers.push_back(transfer.buffer);
  free_when(memory_, [buffers, transfers = transfer_number_] {
    return std::all_of(buffers.begin(), buffers.end(),
                       [transfers](const JoinedBuffer& buffer) { return buffer.unused(transfers); });
  });
}

void JoinTransport::connect() {
  const auto parts = [](const std::vector<PeerMessage>& messages) {
    std::vector<JoinedPart> joined;
    for (const PeerMessage& message : messages) joined.push_back({message.peer, message.nbytes});
    return joined;
  };
  std::uint64_t key = 0x4e6f'6465ull + static_cast<std::uint64_t>(max_node_ranks());
  const MPI_Comm node = link_.context.split(key, link_.topology.partners.front(), link_.rank());
  JoinedRoutes routes(link_, node, parts(messages_.sends), parts(messages_.receives));
  bool allocated = true;
  try {
    allocate(routes);
  } catch (const std::exception& error) {
    static std::atomic<bool> warned{false};
    if (!warned.exchange(true))
      std::fprintf(stderr,
                   "dace-redist: no node-shared memory (rank %d: %s); short messages between nodes are not joined\n",
                   link_.rank(), error.what());
    allocated = false;
  }
  if (lowest_rank(link_.comm(), !allocated) >= 0) return;  // each message moves on its own
  routes.exchange_offsets();
  piece_bytes_ = std::min(link_.options.chunk_bytes, link_.options.max_message_bytes);
  for (const auto direction : JoinedRoutes::directions) add_ends(routes, direction);
  completed_.resize(transfer_of_.size());
  requests_.assign(transfer_of_.size(), MPI_REQUEST_NULL);
  connected_ = true;
  set_parts();
}

/// Allocates the buffers of the messages that this rank carries.
void JoinTransport::allocate(JoinedRoutes& routes) {
  Index nbytes = 0;
  std::vector<Index*> offsets;
  for (const auto direction : JoinedRoutes::directions)
    for (auto& [node, end] : routes.ends(direction)) {
      if (end.carrier != routes.rank()) continue;
      end.buffer_offset = nbytes;
      offsets.push_back(&end.buffer_offset);
      nbytes += JoinedBuffer::nbytes(end.nbytes);
    }
  if (offsets.empty()) return;
  Arena& arena = Arena::own();
  memory_ = arena.allocate(nbytes, false).bytes;
  for (Index* const offset : offsets) {
    new (memory_ + *offset) JoinedBuffer::State{};
    *offset += arena.offset_of(memory_);
  }
}

void JoinTransport::add_ends(JoinedRoutes& routes, JoinedRoutes::Direction direction) {
  const bool sends = direction == JoinedRoutes::sending;
  std::map<int, std::size_t> number_of;  // by node
  // the next node first, so that not all nodes begin with the same one
  std::vector<std::pair<int, JoinedEnd>> ends(routes.ends(direction).begin(), routes.ends(direction).end());
  const int here = routes.node_of(routes.rank());
  std::rotate(ends.begin(), std::find_if(ends.begin(), ends.end(), [&](const auto& end) { return end.first > here; }),
              ends.end());
  for (const auto& [node, end] : ends) {
    const bool carries = end.carrier == routes.rank();
    char* const start =
        carries ? Arena::own().at(end.buffer_offset) : link_.context.arena_of(end.carrier)->at(end.buffer_offset);
    const std::size_t ranks = end.ranks.size(), writers = sends ? ranks : 1, readers = sends ? 1 : ranks;
    number_of[node] = copies_[direction].size();
    copies_[direction].push_back({JoinedBuffer(start, writers, readers, sends), {}, false});
    if (!carries) continue;
    transfers_.push_back(
        {JoinedBuffer(start, writers, readers, !sends), end.nbytes, end.peer, sends, transfer_of_.size(), 0, false});
    const Index pieces = ceil_div(end.nbytes, piece_bytes_);
    transfer_of_.insert(transfer_of_.end(), static_cast<std::size_t>(pieces), transfers_.size() - 1);
  }
  for (const JoinedPart& part : routes.parts(direction))
    places_[direction][part.peer] = {number_of.at(routes.node_of(part.peer)), part.offset};
}

void JoinTransport::set_parts() {
  for (const auto direction : JoinedRoutes::directions) {
    const bool sends = direction == JoinedRoutes::sending;
    for (Copies& copies : copies_[direction]) copies.parts.clear();
    for (const PeerMessage& message : sends ? messages_.sends : messages_.receives) {
      const Place& place = places_[direction].at(message.peer);
      for (Chunk& chunk : cut(message, link_.tensors, sends ? Chunk::Side::sent : Chunk::Side::received,
                              message.nbytes))  // a single one: the joined message is what MPI moves in pieces
        copies_[direction][place.copies].parts.emplace_back(std::move(chunk), place.offset);
    }
  }
}

/// Packs the parts that may be packed, or unpacks those that have arrived. \return whether there were any.
bool JoinTransport::copy_ready(JoinedRoutes::Direction direction) {
  bool any = false;
  for (Copies& copies : copies_[direction]) {
    if (!copies.open || !copies.buffer.ready(transfer_number_)) continue;
    for (const auto& [chunk, offset] : copies.parts)
      if (direction == JoinedRoutes::sending)
        chunk.pack(arrays_, copies.buffer.at(offset), 1);
      else
        chunk.unpack(copies.buffer.at(offset), arrays_, 1);
    copies.buffer.done();
    copies.open = false;
    --open_;
    any = true;
  }
  return any;
}

/// Starts to send or receive a joined message, in as many MPI messages as its size needs.
void JoinTransport::start(Transfer& transfer) {
  transfer.started = true;
  for (Index at = 0; at < transfer.nbytes; at += piece_bytes_) {
    const int count = static_cast<int>(std::min(transfer.nbytes - at, piece_bytes_));
    MPI_Request* const request = &requests_[transfer.first_request + transfer.open++];
    if (!transfer.sends) {
      check(MPI_Irecv(transfer.buffer.at(at), count, MPI_BYTE, transfer.peer, link_.tag, link_.comm(), request),
            "MPI_Irecv");
      continue;
    }
    const trace::Span span("send", transfer.peer, count);
    check(MPI_Isend(transfer.buffer.at(at), count, MPI_BYTE, transfer.peer, link_.tag, link_.comm(), request),
          "MPI_Isend");
  }
  under_way_ += transfer.open;
}

/// Takes note of transfers that have completed. \return whether there were any.
bool JoinTransport::complete() {
  const int count = test_some(requests_, completed_);
  for (int i = 0; i < count; ++i) {
    Transfer& transfer = transfers_[transfer_of_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)])]];
    --under_way_;
    if (--transfer.open > 0) continue;
    transfer.buffer.done();
    --open_;
  }
  return count > 0;
}

}  // namespace

std::unique_ptr<Transport> make_joined(const Link& link, Messages messages) {
  return std::make_unique<JoinTransport>(link, std::move(messages));
}

}  // namespace dace_redist
