// SPDX-License-Identifier: BSD-3-Clause
#include "plan/joint_plan.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace dace_redist {
namespace {

/// One tensor of several: its copies between the arrays and the joint messages. It moves nothing itself.
class JointPart final : public Plan {
 public:
  const std::vector<PackedChunk>& sends() const { return sends_; }
  const std::vector<PackedChunk>& receives() const { return receives_; }
  void copy_own(const char* source, char* target) const { copy_self(source, target); }

 private:
  void prepare() override {
    sends_.clear();
    receives_.clear();
    for (const Message& message : sends_in_order())
      sends_.push_back(pack_plan({message.peer, message.count, message.blocks}, steps()));
    for (const Message& message : receives_in_order())
      receives_.push_back(unpack_plan({message.peer, message.count, message.blocks}, steps()));
  }
  void exchange(const char*, char*) override { throw Error("a tensor of several moves with the others only"); }

  std::vector<PackedChunk> sends_, receives_;
};

/// Several tensors in one exchange: what goes to the same rank is one message, packed and unpacked.
class JointPlan final : public Plan {
 private:
  /// What one tensor has in a message.
  struct Share {
    std::size_t part;
    const CopyList* copies;
    Index offset;  // bytes, in the message
  };
  struct JointMessage {
    int peer = 0;
    Index nbytes = 0, buffer_offset = 0;
    std::vector<Share> shares;
    std::size_t open = 0;  // requests of the exchange at hand
  };

  void prepare() override {}

  void connect() override {
    for (const Description& tensor : description().tensors) parts_.push_back(Plan::make<JointPart>(tensor, comm()));
    send_buffer_ = join(sends_, &JointPart::sends, 1);
    receive_buffer_ = join(receives_, &JointPart::receives, -1);
  }

  /// Joins the parts' messages of each peer. \param direction  as of Plan::sends_in_order().
  Buffer join(std::vector<JointMessage>& messages, const std::vector<PackedChunk>& (JointPart::*chunks)() const,
              int direction) const {
    std::map<int, JointMessage> by_peer;
    for (std::size_t part = 0; part < parts_.size(); ++part)
      for (const PackedChunk& chunk : (parts_[part].get()->*chunks)()) {
        JointMessage& message = by_peer[chunk.peer];
        message.peer = chunk.peer;
        message.shares.push_back({part, &chunk.copies, message.nbytes});
        message.nbytes += ceil_div(chunk.nbytes, 16) * 16;
      }
    for (auto& [peer, message] : by_peer) messages.push_back(std::move(message));
    std::sort(messages.begin(), messages.end(), [&](const JointMessage& a, const JointMessage& b) {
      return direction > 0 ? distance(a.peer) < distance(b.peer) : distance(a.peer) > distance(b.peer);
    });
    Index nbytes = 0;
    for (JointMessage& message : messages) {
      message.buffer_offset = nbytes;
      nbytes += ceil_div(message.nbytes, 64) * 64;
    }
    return Buffer(nbytes);
  }

  /// \param source, target  arrays of the addresses of the tensors' parts.
  void exchange(const char* source, char* target) override {
    const char* const* const sources = reinterpret_cast<const char* const*>(source);
    char* const* const targets = reinterpret_cast<char* const*>(target);
    requests_.clear();
    message_of_.clear();
    for (std::size_t m = 0; m < receives_.size(); ++m) {
      post_receive(receive_buffer_.at(receives_[m].buffer_offset), receives_[m].nbytes, receives_[m].peer, requests_);
      receives_[m].open = requests_.size() - message_of_.size();
      message_of_.resize(requests_.size(), m);
    }
    for (const JointMessage& message : sends_) {
      char* const buffer = send_buffer_.at(message.buffer_offset);
      for (const Share& share : message.shares) share.copies->copy(sources[share.part], buffer + share.offset);
      post_send(buffer, message.nbytes, message.peer, send_requests_);
    }
    for (std::size_t part = 0; part < parts_.size(); ++part) parts_[part]->copy_own(sources[part], targets[part]);
    unpack_arrivals(targets);
    wait_all(send_requests_);
  }

  void unpack_arrivals(char* const* targets) {
    completed_.resize(requests_.size());
    for (std::size_t pending = requests_.size(); pending > 0;) {
      int count = 0;
      check(MPI_Waitsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Waitsome");
      for (int i = 0; i < count; ++i) {
        JointMessage& message =
            receives_[message_of_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)])]];
        if (--message.open > 0) continue;
        const char* const buffer = receive_buffer_.at(message.buffer_offset);
        for (const Share& share : message.shares) share.copies->copy(buffer + share.offset, targets[share.part]);
      }
      pending -= static_cast<std::size_t>(count);
    }
  }

  std::vector<std::unique_ptr<JointPart>> parts_;
  std::vector<JointMessage> sends_, receives_;
  Buffer send_buffer_, receive_buffer_;
  std::vector<MPI_Request> requests_, send_requests_;  // the former of receives
  std::vector<std::size_t> message_of_;                // [receive requests]
  std::vector<int> completed_;                         // [receive requests]
};

}  // namespace

std::unique_ptr<Plan> make_joint_plan(const Description& description, MPI_Comm comm) {
  return Plan::make<JointPlan>(description, comm);
}

}  // namespace dace_redist
