// Strategy Toy: packs all messages, waits for all of MPI, and unpacks.
#include <algorithm>
#include <vector>

#include "copy/buffer.hpp"
#include "plan/strategies.hpp"
#include "transport/chunk.hpp"

namespace {

using namespace dace_redist;

class ToyTransport final : public Transport {
 public:
  ToyTransport(const Link& link, Messages messages) : link_(link) { replan(std::move(messages)); }

  void replan(Messages messages) override {
    // Of partial results the self copy is one message among those received, which are reduced by their steps.
    const auto later = [&](const PeerMessage& message) { return message.step > messages.self.step; };
    messages.receives.insert(std::find_if(messages.receives.begin(), messages.receives.end(), later), messages.self);
    messages.sends.push_back(std::move(messages.self));
    sends_ = chunks(messages.sends, Chunk::Side::sent);
    receives_ = chunks(messages.receives, Chunk::Side::received);
    requests_.resize(sends_.size() + receives_.size());
  }

  void begin(const Arrays& arrays, Pace) override {
    arrays_ = arrays;
    auto request = requests_.begin();
    for (Packed& one : receives_) one.chunk.receive(arrays, one.bytes.at(0), link_.tag, link_.comm(), &*request++);
    for (Packed& one : sends_) {
      if (one.chunk.packed()) one.chunk.pack(arrays, one.bytes.at(0), 1);
      one.chunk.send(arrays, one.bytes.at(0), link_.tag, link_.comm(), &*request++);
    }
    done_ = false;
  }

  bool progress() override {
    int complete = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (!complete) return false;
    for (const Packed& one : receives_)
      if (one.chunk.packed()) one.chunk.unpack(one.bytes.at(0), arrays_, 1);
    return done_ = true;
  }

  bool done() const override { return done_; }

 private:
  struct Packed {
    Chunk chunk;
    Buffer bytes;
  };

  std::vector<Packed> chunks(const std::vector<PeerMessage>& messages, Chunk::Side side) const {
    std::vector<Packed> packed;
    for (const PeerMessage& message : messages)
      for (Chunk& chunk : cut(message, link_.tensors, side, link_.options.max_message_bytes))
        packed.push_back({std::move(chunk), Buffer(chunk.nbytes())});
    return packed;
  }

  Link link_;
  std::vector<Packed> sends_, receives_;
  std::vector<MPI_Request> requests_;
  Arrays arrays_;
  bool done_ = true;
};

std::unique_ptr<Transport> make_toy(const Link& link, Messages messages) {
  return std::make_unique<ToyTransport>(link, std::move(messages));
}

const bool added = (add_strategy({"Toy", nullptr, make_toy}), true);

}  // namespace
