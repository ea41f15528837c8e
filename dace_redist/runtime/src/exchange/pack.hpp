// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy Pack: pack, one message per pair, unpack as they arrive.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3 (there one block after another).

#include <vector>

#include "plan/plan.hpp"

namespace dace_redist {

/// Posts all receives, packs and sends message by message, copies what stays, unpacks in order of arrival. Messages
/// that are contiguous in an array are sent from it or received in it.
class PackPlan : public Plan {
 protected:
  /// Runs copies; what `Threaded` does differently.
  virtual void copy_blocks(const CopyList& copies, const char* source, char* target) const {
    copies.copy(source, target);
  }

  /// A whole message: its chunk and where its bytes lie in the buffer.
  struct PackedMessage {
    PackedChunk chunk;
    Index buffer_offset = 0;       // bytes, unless in place
    std::size_t requests_end = 0;  // receives: one past its last request
  };

  void prepare() override {
    sends_ = packed(sends_in_order(), pack_plan, send_buffer_);
    receives_ = packed(receives_in_order(), unpack_plan, receive_buffer_);
    open_.resize(receives_.size());
    message_of_.clear();
    for (std::size_t m = 0; m < receives_.size(); ++m) {
      message_of_.resize(message_of_.size() + static_cast<std::size_t>(message_count(receives_[m].chunk.nbytes)), m);
      receives_[m].requests_end = message_of_.size();
    }
    Index send_requests = 0;
    for (const PackedMessage& send : sends_) send_requests += message_count(send.chunk.nbytes);
    send_requests_.reserve(static_cast<std::size_t>(send_requests));
    receive_requests_.reserve(message_of_.size());
    completed_.resize(message_of_.size());
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    while (pending_ > 0) unpack(completed(MPI_Waitsome, "MPI_Waitsome"));
    wait_all(send_requests_);
  }

  bool advance() override {
    if (pending_ > 0) unpack(completed(MPI_Testsome, "MPI_Testsome"));
    if (pending_ > 0) return false;
    int sent = 0;
    check(MPI_Testall(static_cast<int>(send_requests_.size()), send_requests_.data(), &sent, MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (sent) send_requests_.clear();
    return sent != 0;
  }

  void begin(const char* source, char* target) override {
    target_ = target;
    receive_requests_.clear();
    for (const PackedMessage& message : receives_)
      post_receive(
          message.chunk.in_place ? target + message.chunk.array_offset : receive_buffer_.at(message.buffer_offset),
          message.chunk.nbytes, message.chunk.peer, receive_requests_);
    for (const PackedMessage& message : sends_) {
      if (!message.chunk.in_place) {
        const trace::Span span("pack", message.chunk.peer, message.chunk.nbytes);
        copy_blocks(message.chunk.copies, source, send_buffer_.at(message.buffer_offset));
      }
      post_send(message.chunk.in_place ? source + message.chunk.array_offset : send_buffer_.at(message.buffer_offset),
                message.chunk.nbytes, message.chunk.peer, send_requests_);
    }
    copy_own(source, target);
    for (std::size_t m = 0; m < receives_.size(); ++m)
      open_[m] = receives_[m].requests_end - (m == 0 ? 0 : receives_[m - 1].requests_end);
    pending_ = receive_requests_.size();
  }

  const std::vector<PackedMessage>& sends() const { return sends_; }
  const std::vector<PackedMessage>& receives() const { return receives_; }
  const Buffer& send_buffer() const { return send_buffer_; }
  const Buffer& receive_buffer() const { return receive_buffer_; }

 private:
  template <class MakePlan>
  std::vector<PackedMessage> packed(const std::vector<Message>& messages, MakePlan make_plan, Buffer& buffer) const {
    std::vector<PackedMessage> list;
    Index nbytes = 0;
    for (const Message& message : messages) {
      PackedMessage packed{make_plan({message.peer, message.count, message.blocks}, steps()), nbytes, 0};
      if (!packed.chunk.in_place) nbytes += ceil_div(packed.chunk.nbytes, 64) * 64;
      list.push_back(std::move(packed));
    }
    buffer = Buffer(nbytes);
    return list;
  }

  void copy_own(const char* source, char* target) const {
    const trace::Span span("copy", trace::no_peer, schedule().self.count * element_bytes());
    copy_blocks(self_copies(), source, target);
  }

  /// The number of requests that have completed, listed in `completed_`.
  /// \param complete  MPI_Waitsome or MPI_Testsome.
  template <class Complete>
  int completed(const Complete& complete, const char* name) {
    const trace::Span span("wait");
    int count = 0;
    check(complete(static_cast<int>(receive_requests_.size()), receive_requests_.data(), &count, completed_.data(),
                   MPI_STATUSES_IGNORE),
          name);
    return count;
  }

  /// Unpacks what has arrived.
  void unpack(int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t m = message_of_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)])];
      const PackedMessage& message = receives_[m];
      if (--open_[m] > 0 || message.chunk.in_place) continue;
      const trace::Span span("unpack", message.chunk.peer, message.chunk.nbytes);
      copy_blocks(message.chunk.copies, receive_buffer_.at(message.buffer_offset), target_);
    }
    pending_ -= static_cast<std::size_t>(count);
  }

  std::vector<PackedMessage> sends_, receives_;
  Buffer send_buffer_, receive_buffer_;
  std::vector<MPI_Request> send_requests_, receive_requests_;
  std::vector<std::size_t> message_of_;  // [receive requests] the message it is a part of
  std::vector<std::size_t> open_;        // [receives] requests that are still open
  std::vector<int> completed_;           // [receive requests] what MPI reports
  std::size_t pending_ = 0;              // receive requests of the exchange at hand that are open
  char* target_ = nullptr;               // of the exchange at hand
};

}  // namespace dace_redist
