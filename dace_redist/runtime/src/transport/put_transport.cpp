// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iterator>
#include <utility>

#include "copy/buffer.hpp"
#include "core/agreement.hpp"
#include "core/machine.hpp"
#include "trace/trace.hpp"
#include "transport/chunk.hpp"
#include "transport/exchange_records.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

/// Puts messages between ranks that synchronise pairwise: each rank opens its windows to those it receives from
/// (post/wait), and puts to those it sends to (start/complete).
///
/// In a window a rank has few partners: Open MPI's MPI_Win_post() waits for ranks to which 32 others have posted until
/// they call MPI_Win_start(), which in an exchange of all with all is for ever.
class PutTransport final : public Transport {
 public:
  PutTransport(const Link& link, Messages messages)
      : link_(link), rank_(comm_rank(link.comm())), size_(comm_size(link.comm())), reduces_(are_partial(link.tensors)) {
    replan(std::move(messages));
  }

  void replan(Messages messages) override {
    sends_ = whole(messages.sends, Chunk::Side::sent);
    receives_ = whole(messages.receives, Chunk::Side::received);
    own_ = cut(messages.self, link_.tensors, Chunk::Side::kept, unlimited);
    own_step_ = messages.self.step;
    receivers_ = peers(sends_);
    senders_ = peers(receives_);
    notices_.assign(receivers_.size(), MPI_REQUEST_NULL);
    Index send_bytes = 0;
    for (Put& send : sends_) {
      send.offset = send_bytes;
      send_bytes += whole_lines(send.chunk.nbytes());
    }
    buffer_ = Buffer(send_bytes);
    place();
  }

  void connect() override {
    int most = static_cast<int>(std::max(receivers_.size(), senders_.size()));
    check(MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT, MPI_MAX, link_.comm()), "MPI_Allreduce");
    one_epoch_ = most <= max_partners;
    std::vector<int> from, to;
    std::vector<Index> offsets;
    all_or_none(link_.comm(), [&] {
      place();
      epochs_.resize(receive_bytes_.size());
      for (const Put& send : sends_) from.push_back(send.chunk.peer());
      for (const Put& receive : receives_) {
        to.push_back(receive.chunk.peer());
        offsets.push_back(receive.offset);
      }
    });
    for (std::size_t e = 0; e < epochs_.size(); ++e) epochs_[e].window = link_.context.take_window(receive_bytes_[e]);
    window_offsets_ = exchange_records(link_, to, std::move(offsets), from);
    for (std::size_t e = 0; e < epochs_.size(); ++e) {
      epochs_[e].targets = group_of(receivers_, [&](int receiver) { return epoch_of(rank_, receiver) == e; });
      epochs_[e].sources = group_of(senders_, [&](int sender) { return epoch_of(sender, rank_) == e; });
    }
  }

  /// MPI_Win_start() may wait until the receivers have opened their windows. So they say when they have, and this rank
  /// puts when all have said so.
  void begin(const Arrays& arrays, Pace) override {
    arrays_ = arrays;
    put_ = sends_.empty();
    received_ = receives_.empty() && !(reduces_ && !own_.empty());
    for (std::size_t r = 0; r < receivers_.size(); ++r)
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, receivers_[r], link_.tag, link_.comm(), &notices_[r]), "MPI_Irecv");
    for (Epoch& epoch : epochs_) {
      epoch.exposed = epoch.sources.get() != MPI_GROUP_NULL;
      if (epoch.exposed) check(MPI_Win_post(epoch.sources.get(), 0, epoch.window->window.get()), "MPI_Win_post");
    }
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
    for (Epoch& epoch : epochs_) {
      int arrived = 1;
      if (epoch.exposed) check(MPI_Win_test(epoch.window->window.get(), &arrived), "MPI_Win_test");
      if (!arrived) return put_now;
      epoch.exposed = false;
    }
    received_ = true;
    unpack();
    return true;
  }

  bool done() const override { return put_ && received_; }
  bool posted() const override { return put_; }
  /// MPI reads the sources until the epoch ends.
  Leaving leave() override {
    if (open_) complete();
    return Leaving::left;
  }

 private:
  static constexpr int max_partners = 32;

  struct Put {
    Chunk chunk;
    Index step;
    Index offset = 0;  // bytes, in the buffer or in this rank's window
    std::size_t epoch = 0;
  };

  /// A window, with the ranks to whose memory this one puts, and those that put to this one's.
  struct Epoch {
    std::shared_ptr<PooledWindow> window;
    Group targets, sources;  // null if there are none
    bool exposed = false;    // whether sources may put
  };

  std::vector<Put> whole(const std::vector<PeerMessage>& messages, Chunk::Side side) const {
    std::vector<Put> puts;
    for (const PeerMessage& message : messages)
      for (Chunk& chunk : cut(message, link_.tensors, side, link_.options.max_message_bytes))
        puts.push_back({std::move(chunk), message.step});
    return puts;
  }

  std::size_t epoch_of(int sender, int receiver) const {
    return one_epoch_ ? 0 : static_cast<std::size_t>((receiver - sender + size_) % size_) / max_partners;
  }

  /// Gives the messages their places in windows.
  void place() {
    for (Put& send : sends_) send.epoch = epoch_of(rank_, send.chunk.peer());
    receive_bytes_.assign(epoch_of(0, size_ - 1) + 1, 0);
    for (Put& receive : receives_) {
      receive.epoch = epoch_of(receive.chunk.peer(), rank_);
      receive.offset = receive_bytes_[receive.epoch];
      receive_bytes_[receive.epoch] += whole_lines(receive.chunk.nbytes());
    }
  }

  static std::vector<int> peers(const std::vector<Put>& puts) {
    std::vector<int> ranks;
    for (const Put& one : puts)
      if (ranks.empty() || ranks.back() != one.chunk.peer()) ranks.push_back(one.chunk.peer());
    return ranks;
  }

  template <class Belongs>
  Group group_of(const std::vector<int>& ranks, const Belongs& belongs) const {
    std::vector<int> members;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(members), belongs);
    Group everyone, some;
    if (members.empty()) return some;
    check(MPI_Comm_group(link_.comm(), everyone.put()), "MPI_Comm_group");
    check(MPI_Group_incl(everyone.get(), static_cast<int>(members.size()), members.data(), some.put()),
          "MPI_Group_incl");
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
                  epochs_[send.epoch].window->window.get()),
          "MPI_Put");
  }

  /// Puts all messages once all receivers have opened their windows. \return whether they have.
  bool put_all() {
    int opened = 0;
    check(MPI_Testall(static_cast<int>(notices_.size()), notices_.data(), &opened, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (!opened) return false;
    for (std::size_t e = 0; e < epochs_.size(); ++e) {
      if (epochs_[e].targets.get() == MPI_GROUP_NULL) continue;
      check(MPI_Win_start(epochs_[e].targets.get(), 0, epochs_[e].window->window.get()), "MPI_Win_start");
      open_ = &epochs_[e];
      for (std::size_t s = 0; s < sends_.size(); ++s)
        if (sends_[s].epoch == e) put(sends_[s], window_offsets_[s]);
      complete();
    }
    return put_ = true;
  }

  void complete() {
    check(MPI_Win_complete(open_->window->window.get()), "MPI_Win_complete");
    open_ = nullptr;
  }

  /// Partial results are in the order of the reduction; this rank's own have their place among them.
  void unpack() {
    bool own_left = reduces_;
    for (const Put& receive : receives_) {
      if (own_left && receive.step > own_step_) {
        copy_own();
        own_left = false;
      }
      receive.chunk.unpack(epochs_[receive.epoch].window->memory + receive.offset, arrays_, link_.threads());
    }
    if (own_left) copy_own();
  }

  void copy_own() {
    for (const Chunk& own : own_) own.copy(arrays_, link_.threads());
  }

  Link link_;
  int rank_, size_;
  bool reduces_;
  bool one_epoch_ = true;  // no rank has more than max_partners
  std::vector<Put> sends_, receives_;
  std::vector<Chunk> own_;  // the self copy
  Index own_step_ = 0;
  std::vector<Index> receive_bytes_;   // [epochs] of this rank's windows
  std::vector<Index> window_offsets_;  // [sends] bytes, in the windows of the receivers
  Buffer buffer_;
  std::vector<int> receivers_, senders_;
  std::vector<Epoch> epochs_;

  // Of the transfer at hand:
  Arrays arrays_;
  std::vector<MPI_Request> notices_;  // [receivers] that their windows are open
  bool put_ = true, received_ = true;
  const Epoch* open_ = nullptr;  // to which this rank puts
};

}  // namespace

std::unique_ptr<Transport> make_put(const Link& link, Messages messages) {
  return std::make_unique<PutTransport>(link, std::move(messages));
}

}  // namespace dace_redist
