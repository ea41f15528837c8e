// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy RMA: packed messages are put straight into the memory of their receivers.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3 (there for one pair of ranks: a window
/// per pair, made while running, deadlocks in a whole redistribution; here one window is made with the plan).

#include <vector>

#include "plan/plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// One window per plan. Only partners synchronise: each rank opens its window to the ranks it receives from
/// (post/wait) and puts to the ranks it sends to (start/complete).
class RMAPlan final : public Plan {
 private:
  struct PutMessage {
    PackedChunk chunk;
    Index buffer_offset = 0;  // bytes, in the send buffer or in this rank's window
    Index window_offset = 0;  // sends: bytes, in the receiver's window
  };

  void prepare() override {
    std::vector<Index> window_offsets;  // known once connected
    for (const PutMessage& send : sends_) window_offsets.push_back(send.window_offset);
    sends_.clear();
    receives_.clear();
    Index send_bytes = 0;
    window_bytes_ = 0;
    for (const Message& message : sends_in_order())
      sends_.push_back(packed(pack_plan({message.peer, message.count, message.blocks}, steps()), send_bytes));
    for (const Message& message : receives_in_order())
      receives_.push_back(packed(unpack_plan({message.peer, message.count, message.blocks}, steps()), window_bytes_));
    send_buffer_ = Buffer(send_bytes);
    for (std::size_t s = 0; s < window_offsets.size(); ++s) sends_[s].window_offset = window_offsets[s];
  }

  static PutMessage packed(PackedChunk chunk, Index& nbytes) {
    PutMessage packed{std::move(chunk), nbytes, 0};
    nbytes += ceil_div(packed.chunk.nbytes, 64) * 64;
    return packed;
  }

  void connect() override {
    std::vector<MPI_Request> requests;
    requests.reserve(sends_.size() + receives_.size());
    for (PutMessage& send : sends_)
      post_receive(reinterpret_cast<char*>(&send.window_offset), sizeof(Index), send.chunk.peer, requests);
    for (const PutMessage& receive : receives_)
      post_send(reinterpret_cast<const char*>(&receive.buffer_offset), sizeof(Index), receive.chunk.peer, requests);
    wait_all(requests);
    targets_ = partners(sends_);
    sources_ = partners(receives_);
    check(MPI_Win_allocate(static_cast<MPI_Aint>(window_bytes_), 1, MPI_INFO_NULL, comm(), &window_memory_,
                           window_.put()),
          "MPI_Win_allocate");
    check(MPI_Win_set_errhandler(window_.get(), MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  }

  Group partners(const std::vector<PutMessage>& messages) const {
    Group everyone, some;
    std::vector<int> ranks;
    for (const PutMessage& message : messages) ranks.push_back(message.chunk.peer);
    check(MPI_Comm_group(comm(), everyone.put()), "MPI_Comm_group");
    check(MPI_Group_incl(everyone.get(), static_cast<int>(ranks.size()), ranks.data(), some.put()), "MPI_Group_incl");
    return some;
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    wait();
    finish();
  }

  /// May wait for the receivers to begin.
  bool advance() override {
    if (std::exchange(open_to_puts_, false) && !sends_.empty())
      check(MPI_Win_complete(window_.get()), "MPI_Win_complete");
    int arrived = 1;
    if (!receives_.empty()) check(MPI_Win_test(window_.get(), &arrived), "MPI_Win_test");
    if (arrived) finish();
    return arrived != 0;
  }

  void begin(const char* source, char* target) override {
    target_ = target;
    open_to_puts_ = true;
    if (!receives_.empty()) check(MPI_Win_post(sources_.get(), 0, window_.get()), "MPI_Win_post");
    if (!sends_.empty()) check(MPI_Win_start(targets_.get(), 0, window_.get()), "MPI_Win_start");
    for (const PutMessage& send : sends_) put(send, source);
    copy_self(source, target);
  }

  void wait() const {
    const trace::Span span("wait");
    if (!sends_.empty()) check(MPI_Win_complete(window_.get()), "MPI_Win_complete");
    if (!receives_.empty()) check(MPI_Win_wait(window_.get()), "MPI_Win_wait");
  }

  void finish() const {
    for (const PutMessage& receive : receives_) receive.chunk.unpack(window_memory_ + receive.buffer_offset, target_);
  }

  void put(const PutMessage& send, const char* source) const {
    const char* bytes = send.chunk.in_place ? source + send.chunk.array_offset : send_buffer_.at(send.buffer_offset);
    if (!send.chunk.in_place) send.chunk.pack(source, send_buffer_.at(send.buffer_offset));
    const trace::Span span("put", send.chunk.peer, send.chunk.nbytes);
    for (Index at = 0; at < send.chunk.nbytes; at += options().max_message_bytes) {
      const int count = static_cast<int>(std::min(send.chunk.nbytes - at, options().max_message_bytes));
      check(MPI_Put(bytes + at, count, MPI_BYTE, send.chunk.peer, static_cast<MPI_Aint>(send.window_offset + at), count,
                    MPI_BYTE, window_.get()),
            "MPI_Put");
    }
  }

  std::vector<PutMessage> sends_, receives_;
  Buffer send_buffer_;
  Index window_bytes_ = 0;
  char* window_memory_ = nullptr;  // owned by window_
  char* target_ = nullptr;         // of the exchange at hand
  bool open_to_puts_ = false;      // whether its puts are still to be completed
  Group targets_, sources_;
  Window window_;
};

static const RegisteredStrategy<RMAPlan> rma_strategy("RMA");

}  // namespace dace_redist
