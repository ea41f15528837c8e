// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "copy/buffer.hpp"
#include "core/machine.hpp"
#include "trace/trace.hpp"
#include "transport/chunk.hpp"
#include "transport/exchange_records.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

/// Puts messages between ranks that synchronise pairwise: each rank opens its window to those it receives from
/// (post/wait), and puts to those it sends to (start/complete).
class PutTransport final : public Transport {
 public:
  PutTransport(const Link& link, Messages messages) : link_(link), reduces_(are_partial(link.tensors)) {
    replan(std::move(messages));
  }

  void replan(Messages messages) override {
    sends_ = whole(messages.sends, Chunk::Side::sent, send_bytes_);
    receives_ = whole(messages.receives, Chunk::Side::received, receive_bytes_);
    own_ = cut(messages.self, link_.tensors, Chunk::Side::kept, unlimited);
    own_step_ = messages.self.step;
    buffer_ = Buffer(send_bytes_);
  }

  void connect() override {
    window_ = link_.context.take_window(receive_bytes_);
    std::vector<int> from, to;
    std::vector<Index> offsets;
    for (const Put& send : sends_) from.push_back(send.chunk.peer());
    for (const Put& receive : receives_) {
      to.push_back(receive.chunk.peer());
      offsets.push_back(receive.offset);
    }
    window_offsets_ = exchange_records(link_, to, std::move(offsets), from);
    receivers_ = peers(sends_);
    senders_ = peers(receives_);
    notices_.assign(receivers_.size(), MPI_REQUEST_NULL);
    targets_ = group_of(receivers_);
    sources_ = group_of(senders_);
  }

  /// MPI_Win_start() may wait until the receivers have opened their windows. So they say when they have, and this rank
  /// puts when all have said so.
  void begin(const Arrays& arrays, Pace) override {
    arrays_ = arrays;
    put_ = sends_.empty();
    received_ = receives_.empty() && !(reduces_ && !own_.empty());
    for (std::size_t r = 0; r < receivers_.size(); ++r)
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, receivers_[r], link_.tag, link_.comm(), &notices_[r]), "MPI_Irecv");
    if (!receives_.empty()) check(MPI_Win_post(sources_.get(), 0, window_->window.get()), "MPI_Win_post");
    for (const int sender : senders_) {
      MPI_Request sent = MPI_REQUEST_NULL;
      check(MPI_Isend(nullptr, 0, MPI_BYTE, sender, link_.tag, link_.comm(), &sent), "MPI_Isend");
      check(MPI_Request_free(&sent), "MPI_Request_free");  // what the sender puts then proves its arrival
    }
    if (!reduces_) copy_own();
  }

  bool progress() override {
    if (done()) return false;
    const bool put_now = !put_ && put_all();
    if (!put_ || received_) return put_now;
    int arrived = 1;
    if (!receives_.empty()) check(MPI_Win_test(window_->window.get(), &arrived), "MPI_Win_test");
    if (!arrived) return put_now;
    received_ = true;
    unpack();
    return true;
  }

  bool done() const override { return put_ && received_; }
  bool posted() const override { return put_; }
  /// MPI reads the sources until the epoch ends.
  Leaving leave() override {
    if (starts_) complete();
    return Leaving::left;
  }

 private:
  struct Put {
    Chunk chunk;
    Index step;
    Index offset;  // bytes, in the buffer or in this rank's window
  };

  std::vector<Put> whole(const std::vector<PeerMessage>& messages, Chunk::Side side, Index& nbytes) const {
    std::vector<Put> puts;
    nbytes = 0;
    for (const PeerMessage& message : messages)
      for (Chunk& chunk : cut(message, link_.tensors, side, link_.options.max_message_bytes)) {
        puts.push_back({std::move(chunk), message.step, nbytes});
        nbytes += whole_lines(puts.back().chunk.nbytes());
      }
    return puts;
  }

  static std::vector<int> peers(const std::vector<Put>& puts) {
    std::vector<int> ranks;
    for (const Put& one : puts)
      if (ranks.empty() || ranks.back() != one.chunk.peer()) ranks.push_back(one.chunk.peer());
    return ranks;
  }

  Group group_of(const std::vector<int>& ranks) const {
    Group everyone, some;
    check(MPI_Comm_group(link_.comm(), everyone.put()), "MPI_Comm_group");
    check(MPI_Group_incl(everyone.get(), static_cast<int>(ranks.size()), ranks.data(), some.put()), "MPI_Group_incl");
    return some;
  }

  /// \param window_offset  in the window of the receiver.
  void put(const Put& send, Index window_offset) {
    char* const packed = buffer_.at(send.offset);
    if (!send.chunk.in_place()) send.chunk.pack(arrays_, packed, link_.threads());
    const char* const bytes = send.chunk.in_place() ? send.chunk.in_source(arrays_) : packed;
    const trace::Span span("put", send.chunk.peer(), send.chunk.nbytes());
    const int count = static_cast<int>(send.chunk.nbytes());
    check(MPI_Put(bytes, count, MPI_BYTE, send.chunk.peer(), static_cast<MPI_Aint>(window_offset), count, MPI_BYTE,
                  window_->window.get()),
          "MPI_Put");
  }

  /// Puts all messages once all receivers have opened their windows. \return whether they have.
  bool put_all() {
    int opened = 0;
    check(MPI_Testall(static_cast<int>(notices_.size()), notices_.data(), &opened, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (!opened) return false;
    check(MPI_Win_start(targets_.get(), 0, window_->window.get()), "MPI_Win_start");
    starts_ = true;
    for (std::size_t s = 0; s < sends_.size(); ++s) put(sends_[s], window_offsets_[s]);
    complete();
    return put_ = true;
  }

  void complete() {
    check(MPI_Win_complete(window_->window.get()), "MPI_Win_complete");
    starts_ = false;
  }

  /// Partial results are in the order of the reduction; this rank's own have their place among them.
  void unpack() {
    bool own_left = reduces_;
    for (const Put& receive : receives_) {
      if (own_left && receive.step > own_step_) {
        copy_own();
        own_left = false;
      }
      receive.chunk.unpack(window_->memory + receive.offset, arrays_, link_.threads());
    }
    if (own_left) copy_own();
  }

  void copy_own() {
    for (const Chunk& own : own_) own.copy(arrays_, link_.threads());
  }

  Link link_;
  bool reduces_;
  std::vector<Put> sends_, receives_;
  std::vector<Chunk> own_;  // the self copy
  Index own_step_ = 0;
  Index send_bytes_ = 0, receive_bytes_ = 0;
  std::vector<Index> window_offsets_;  // [sends] bytes, in the windows of the receivers
  Buffer buffer_;
  std::shared_ptr<PooledWindow> window_;
  std::vector<int> receivers_, senders_;
  Group targets_, sources_;

  // Of the transfer at hand:
  Arrays arrays_;
  std::vector<MPI_Request> notices_;  // [receivers] that their windows are open
  bool put_ = true, received_ = true;
  bool starts_ = false;  // whether an epoch of puts is open
};

}  // namespace

std::unique_ptr<Transport> make_put(const Link& link, Messages messages) {
  return std::make_unique<PutTransport>(link, std::move(messages));
}

}  // namespace dace_redist
