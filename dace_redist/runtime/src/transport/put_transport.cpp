// SPDX-License-Identifier: BSD-3-Clause
#include "transport/put_transport.hpp"

#include <algorithm>
#include <utility>

#include "copy/buffer.hpp"
#include "core/cache_line.hpp"
#include "core/exchange_records.hpp"
#include "trace/trace.hpp"
#include "transport/chunk.hpp"

namespace dace_redist {
namespace {

/// Puts messages between ranks that synchronise pairwise: each rank opens its window to those it receives from
/// (post/wait), and puts to those it sends to (start/complete).
class PutTransport final : public Transport {
 public:
  PutTransport(const Link& link, Messages messages) : link_(link) { replan(std::move(messages)); }
  ~PutTransport() override {
    if (connected_) link_.context.give_back(std::move(window_));
  }

  void replan(Messages messages) override {
    const std::vector<Put> before = std::exchange(sends_, whole(messages.sends, Chunk::Side::sent, send_bytes_));
    for (std::size_t s = 0; s < before.size(); ++s) sends_[s].window_offset = before[s].window_offset;
    receives_ = whole(messages.receives, Chunk::Side::received, receive_bytes_);
    own_.set(messages.self, link_.tensors);
    buffer_ = Buffer(send_bytes_);
  }

  void connect() override {
    window_ = link_.context.take_window(receive_bytes_);
    connected_ = true;
    std::vector<int> from, to;
    std::vector<Index> offsets;
    for (const Put& send : sends_) from.push_back(send.chunk.peer());
    for (const Put& receive : receives_) {
      to.push_back(receive.chunk.peer());
      offsets.push_back(receive.offset);
    }
    const std::vector<Index> told = exchange_records(link_.comm(), link_.tag, to, std::move(offsets), from);
    for (std::size_t s = 0; s < sends_.size(); ++s) sends_[s].window_offset = told[s];
    receivers_ = peers(sends_);
    senders_ = peers(receives_);
    notices_.assign(receivers_.size(), MPI_REQUEST_NULL);
    targets_ = group_of(receivers_);
    sources_ = group_of(senders_);
  }

  /// MPI_Win_start() may wait until the receivers have opened their windows. So they say when they have, and an
  /// attended transfer puts when all have said so; an unattended one waits for that here.
  void begin(const Arrays& arrays, Pace pace) override {
    arrays_ = arrays;
    received_ = receives_.empty();
    put_ = completed_ = sends_.empty();
    done_ = received_ && put_ && own_.empty();
    for (std::size_t r = 0; r < receivers_.size(); ++r)
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, receivers_[r], link_.tag, link_.comm(), &notices_[r]), "MPI_Irecv");
    if (!received_) check(MPI_Win_post(sources_.get(), 0, window_.window.get()), "MPI_Win_post");
    for (const int sender : senders_)
      check(MPI_Send(nullptr, 0, MPI_BYTE, sender, link_.tag, link_.comm()), "MPI_Send");
    if (pace == Pace::attended) return;
    while (!put_) {
      if (put_all()) break;
      link_.context.check_failures(link_.owner);
    }
    complete();
  }

  bool progress() override {
    if (done_) return false;
    const bool put_now = !put_ && put_all();
    if (!put_) return false;
    complete();
    int arrived = 1;
    if (!received_) check(MPI_Win_test(window_.window.get(), &arrived), "MPI_Win_test");
    if (!arrived) return put_now;
    received_ = done_ = true;
    unpack();
    return true;
  }

  bool done() const override { return done_; }

 private:
  struct Put {
    Chunk chunk;
    Index step;
    Index offset;             // bytes, in the buffer or in this rank's window
    Index window_offset = 0;  // of what is sent, in the window of the receiver
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

  void put(const Put& send) {
    char* const packed = buffer_.at(send.offset);
    if (!send.chunk.in_place()) send.chunk.pack(arrays_, packed, link_.threads());
    const char* const bytes = send.chunk.in_place() ? send.chunk.in_source(arrays_) : packed;
    const trace::Span span("put", send.chunk.peer(), send.chunk.nbytes());
    const int count = static_cast<int>(send.chunk.nbytes());
    check(MPI_Put(bytes, count, MPI_BYTE, send.chunk.peer(), static_cast<MPI_Aint>(send.window_offset), count, MPI_BYTE,
                  window_.window.get()),
          "MPI_Put");
  }

  /// Puts all messages once all receivers have opened their windows. \return whether they have.
  bool put_all() {
    int opened = 0;
    check(MPI_Testall(static_cast<int>(notices_.size()), notices_.data(), &opened, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (!opened) return false;
    check(MPI_Win_start(targets_.get(), 0, window_.window.get()), "MPI_Win_start");
    for (const Put& send : sends_) put(send);
    return put_ = true;
  }

  void complete() {
    if (!std::exchange(completed_, true)) check(MPI_Win_complete(window_.window.get()), "MPI_Win_complete");
  }

  /// Partial results are in the order of the reduction; this rank's own have their place among them.
  void unpack() {
    bool own_left = true;
    for (const Put& receive : receives_) {
      if (own_left && receive.step > own_.step()) {
        own_.run(arrays_, link_.threads());
        own_left = false;
      }
      receive.chunk.unpack(window_.memory + receive.offset, arrays_, link_.threads());
    }
    if (own_left) own_.run(arrays_, link_.threads());
  }

  Link link_;
  std::vector<Put> sends_, receives_;
  SelfCopy own_;
  Index send_bytes_ = 0, receive_bytes_ = 0;
  Buffer buffer_;
  PooledWindow window_;
  bool connected_ = false;
  std::vector<int> receivers_, senders_;
  Group targets_, sources_;

  // Of the transfer at hand:
  Arrays arrays_;
  std::vector<MPI_Request> notices_;  // [receivers] that their windows are open
  bool received_ = true, put_ = true, completed_ = true, done_ = true;
};

}  // namespace

std::unique_ptr<Transport> make_put(const Link& link, Messages messages) {
  return std::make_unique<PutTransport>(link, std::move(messages));
}

}  // namespace dace_redist
