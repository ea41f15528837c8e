// Strategy Toy: exchanges with one rank after another, and waits for each.
#include <vector>

#include "plan/registry.hpp"

namespace {

using namespace dace_redist;

class ToyPlan final : public Plan {
  struct Packed {
    PackedChunk chunk;
    Buffer bytes;
  };

  /// Buffers and copies, which are local.
  void prepare() override {
    size_ = comm_size(comm());
    sends_ = packed(schedule().sends, pack_plan);
    receives_ = packed(schedule().receives, unpack_plan);
  }

  template <class MakeCopies>
  std::vector<Packed> packed(const std::vector<Message>& messages, const MakeCopies& make_copies) const {
    std::vector<Packed> by_rank(static_cast<std::size_t>(size_));
    for (const Message& message : messages) {
      Packed& packed = by_rank[static_cast<std::size_t>(message.peer)];
      packed.chunk = make_copies({message.peer, message.count, message.blocks}, steps());
      packed.bytes = Buffer(packed.chunk.nbytes);
    }
    return by_rank;
  }

  /// Moves the tensor; called any number of times.
  void exchange(const char* source, char* target) override {
    copy_self(source, target);
    for (int shift = 1; shift < size_; ++shift) {
      const int to = (rank() + shift) % size_, from = (rank() - shift + size_) % size_;
      const Packed& send = sends_[static_cast<std::size_t>(to)];
      const Packed& receive = receives_[static_cast<std::size_t>(from)];
      send.chunk.copies.copy(source, send.bytes.at(0));
      post_receive(receive.bytes.at(0), receive.chunk.nbytes, from, requests_);
      post_send(send.bytes.at(0), send.chunk.nbytes, to, requests_);
      wait_all(requests_);
      receive.chunk.copies.copy(receive.bytes.at(0), target);
    }
  }

  int size_ = 1;
  std::vector<Packed> sends_, receives_;  // [ranks]
  std::vector<MPI_Request> requests_;
};

const RegisteredStrategy<ToyPlan> toy_strategy("Toy");

}  // namespace
