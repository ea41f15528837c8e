// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy RMA: packed messages are put straight into the memory of their receivers.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3 (there for one pair of ranks: a window
/// per pair, made while running, deadlocks in a whole redistribution; here one window is made with the plan).

#include <vector>

#include "exchange/put_window.hpp"
#include "plan/plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// Packs each message, puts it, and unpacks out of the window what has arrived.
class RMAPlan final : public Plan {
 private:
  struct BufferedMessage {
    PackedChunk chunk;
    Index buffer_offset = 0;  // bytes, in the send buffer or in this rank's window
  };

  void prepare() override {
    sends_.clear();
    receives_.clear();
    Index send_bytes = 0;
    window_bytes_ = 0;
    for (const Message& message : sends_in_order())
      sends_.push_back(buffered(pack_plan({message.peer, message.count, message.blocks}, steps()), send_bytes));
    for (const Message& message : receives_in_order())
      receives_.push_back(buffered(unpack_plan({message.peer, message.count, message.blocks}, steps()), window_bytes_));
    send_buffer_ = Buffer(send_bytes);
  }

  static BufferedMessage buffered(PackedChunk chunk, Index& nbytes) {
    BufferedMessage message{std::move(chunk), nbytes};
    nbytes += ceil_div(message.chunk.nbytes, 64) * 64;
    return message;
  }

  void connect() override {
    const auto described = [](const std::vector<BufferedMessage>& messages) {
      std::vector<PutWindow::Message> list;
      for (const BufferedMessage& message : messages)
        list.push_back({message.chunk.peer, message.chunk.nbytes, message.buffer_offset});
      return list;
    };
    window_.connect(comm(), tag, described(sends_), described(receives_), nullptr, window_bytes_);
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    window_.wait();
    finish();
  }

  void begin(const char* source, char* target) override {
    target_ = target;
    window_.open();
    for (std::size_t s = 0; s < sends_.size(); ++s) put(s, source);
    copy_self(source, target);
  }

  bool advance() override {
    if (!window_.arrived()) return false;
    finish();
    return true;
  }

  void put(std::size_t send, const char* source) const {
    const auto& [chunk, buffer_offset] = sends_[send];
    const char* bytes = chunk.in_place ? source + chunk.array_offset : send_buffer_.at(buffer_offset);
    if (!chunk.in_place) chunk.pack(source, send_buffer_.at(buffer_offset));
    window_.put(send, bytes, options().max_message_bytes);
  }

  void finish() const {
    for (const BufferedMessage& receive : receives_)
      receive.chunk.unpack(window_.memory() + receive.buffer_offset, target_);
  }

  std::vector<BufferedMessage> sends_, receives_;
  Buffer send_buffer_;
  Index window_bytes_ = 0;
  char* target_ = nullptr;  // of the exchange at hand
  PutWindow window_;
};

static const RegisteredStrategy<RMAPlan> rma_strategy("RMA");

}  // namespace dace_redist
