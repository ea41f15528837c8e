// SPDX-License-Identifier: BSD-3-Clause
#include "plan/joint_plan.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/backoff.hpp"
#include "plan/joint_messages.hpp"
#include "plan/registry.hpp"

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
    for (const Message& message : schedule().sends)
      sends_.push_back(pack_plan({message.peer, message.count, message.blocks}, steps()));
    for (const Message& message : schedule().receives)
      receives_.push_back(unpack_plan({message.peer, message.count, message.blocks}, steps()));
  }
  void exchange(const char*, char*) override { throw Error("a tensor of several moves with the others only"); }

  std::vector<PackedChunk> sends_, receives_;
};

/// Several tensors in one exchange. Of those whose messages are short, what goes to the same rank is one message. A
/// tensor whose messages are long gains nothing by that; it has a plan of its own, by which it moves with one copy
/// where the strategy has one, and so has one with partial results. All are under way at once.
class JointPlan final : public Plan {
 private:
  /// A joint message over MPI, in a buffer.
  struct NetworkMessage {
    JointMessage message;
    Index buffer_offset = 0;
    std::size_t open = 0;  // requests of the exchange at hand
  };
  using Chunks = const std::vector<PackedChunk>& (JointPart::*)() const;

  // Mean length from which on a tensor's messages are long. A copy more takes as long as a handshake of a few
  // microseconds.
  static constexpr Index long_message_bytes = Index{32} << 10;

  bool node_aware() const { return description().strategy == "Hierarchical"; }

  void prepare() override {}

  void connect() override {
    sources_.resize(description().tensors.size());
    targets_.resize(sources_.size());
    make_plans();
    std::vector<JointMessage> sends = join(&JointPart::sends, true), receives = join(&JointPart::receives, false);
    if (node_aware()) share_on_node(sends, receives);
    all_or_none(comm(), [&] {
      send_buffer_ = set_network(sends_, std::move(sends));
      receive_buffer_ = set_network(receives_, std::move(receives));
    });
  }

  void make_plans() {
    const std::vector<Description>& tensors = description().tensors;
    std::vector<MakePlan> makers;
    std::vector<Index> totals;
    all_or_none(comm(), [&] {  // the others would wait for a rank that found a tensor wrong later
      for (const Description& tensor : tensors) makers.push_back(plan_maker(tensor));
      totals = sent_totals();
    });
    const std::vector<char> joined = joined_tensors(std::move(totals));
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor)
      if (joined[tensor])
        parts_.push_back({tensor, Plan::make<JointPart>(tensors[tensor], comm())});
      else
        alone_.push_back({tensor, makers[tensor](tensors[tensor], comm())});
  }

  /// Bytes and messages that this rank sends of each tensor, one after the other.
  std::vector<Index> sent_totals() const {
    std::vector<Index> totals;
    for (const Description& tensor : description().tensors) {
      const Distribution source(tensor.source, "source"), target(tensor.target, "target");
      const IndexMap map(tensor.index_map, source, target);
      const RankSchedule sent = make_schedule(source, target, map, rank(), false);
      Index nbytes = 0;
      for (const Message& message : sent.sends) nbytes += message.count * tensor.element_bytes;
      totals.insert(totals.end(), {nbytes, static_cast<Index>(sent.sends.size())});
    }
    return totals;
  }

  /// Whether each tensor's messages are joined with those of others, the same on every rank. Collective.
  /// \param totals  see sent_totals().
  std::vector<char> joined_tensors(std::vector<Index> totals) const {
    const std::vector<Description>& tensors = description().tensors;
    check(MPI_Allreduce(MPI_IN_PLACE, totals.data(), static_cast<int>(totals.size()), MPI_INT64_T, MPI_SUM, comm()),
          "MPI_Allreduce");
    std::vector<char> joined(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t)
      joined[t] = tensors[t].operation.reduction == Reduction::none &&
                  !(node_aware() && totals[2 * t] >= long_message_bytes * totals[2 * t + 1]);
    return joined;
  }

  /// The parts' messages of each peer as one, in the order of rounds.
  /// \param sends  whether they are the chunks that this rank sends.
  std::vector<JointMessage> join(Chunks chunks, bool sends) const {
    std::map<int, JointMessage> by_peer;
    for (const auto& [tensor, part] : parts_)
      for (const PackedChunk& chunk : (part.get()->*chunks)()) {
        JointMessage& message = by_peer[chunk.peer];
        message.peer = chunk.peer;
        message.append(tensor, chunk);
      }
    std::vector<JointMessage> messages;
    for (auto& [peer, message] : by_peer) messages.push_back(std::move(message));
    const auto turn = [&](const JointMessage& message) {
      return sends ? round(rank(), message.peer) : round(message.peer, rank());
    };
    std::sort(messages.begin(), messages.end(),
              [&](const JointMessage& a, const JointMessage& b) { return turn(a) < turn(b); });
    return messages;
  }

  /// Takes the messages between ranks of this node out of the lists, if memory can be shared. Collective.
  void share_on_node(std::vector<JointMessage>& sends, std::vector<JointMessage>& receives) {
    const std::vector<int> partners = ranks_of_node(comm());
    const auto off_node = [&](const JointMessage& message) {
      return !std::binary_search(partners.begin(), partners.end(), message.peer);
    };
    const auto split = [&](std::vector<JointMessage>& messages) {
      return std::stable_partition(messages.begin(), messages.end(), off_node);
    };
    const auto first_send = split(sends), first_receive = split(receives);
    if (!works_on_node([&] { node_.allocate({first_send, sends.end()}, {first_receive, receives.end()}); })) return;
    std::vector<Endpoint> mine(node_.send_count()), theirs(node_.receive_count());
    std::vector<MPI_Request> requests;
    for (std::size_t r = 0; r < theirs.size(); ++r)
      post_receive(reinterpret_cast<char*>(&theirs[r]), sizeof(Endpoint), node_.receive_peer(r), requests);
    for (std::size_t s = 0; s < mine.size(); ++s) {
      mine[s] = node_.endpoint_for_receiver(s);
      post_send(reinterpret_cast<char*>(&mine[s]), sizeof(Endpoint), node_.send_peer(s), requests);
    }
    wait_all(requests);
    shared_ = works_on_node([&] { node_.connect(theirs); });
    if (!shared_) return;
    sends.erase(first_send, sends.end());
    receives.erase(first_receive, receives.end());
    partner_count_ = partners.size();
  }

  static Buffer set_network(std::vector<NetworkMessage>& network, std::vector<JointMessage> messages) {
    Index nbytes = 0;
    for (JointMessage& message : messages) {
      const Index size = ceil_div(message.nbytes, 64) * 64;
      network.push_back({std::move(message), nbytes});
      nbytes += size;
    }
    return Buffer(nbytes);
  }

  std::string missing_array(const void* source, const void* target) const override {
    if (!source || !target) return source ? "target" : "source";
    const auto sources = static_cast<const void* const*>(source);
    const auto targets = static_cast<void* const*>(target);
    std::string missing;
    const auto look_at = [&](std::size_t tensor, const Plan& plan) {
      const std::string name = plan.missing_array(sources[tensor], targets[tensor]);
      if (!name.empty()) missing = text(name, "[", tensor, "]");
    };
    for (const auto& [tensor, part] : parts_) look_at(tensor, *part);
    for (const auto& [tensor, plan] : alone_) look_at(tensor, *plan);
    return missing;
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    for (Backoff backoff(partner_count_, comm()); !finished();) {
      if (advances())
        backoff.reset();
      else
        backoff.wait();
    }
  }

  /// \param source, target  arrays of the addresses of the tensors' parts.
  void begin(const char* source, char* target) override {
    std::copy_n(reinterpret_cast<const char* const*>(source), sources_.size(), sources_.begin());
    std::copy_n(reinterpret_cast<char* const*>(target), targets_.size(), targets_.begin());
    begin_network();
    if (shared_) {
      node_.begin();
      node_.progress(sources_, targets_);
    }
    for (const auto& [tensor, plan] : alone_) plan->start(sources_[tensor], targets_[tensor]);
    running_.assign(alone_.size(), 1);
    for (const auto& [tensor, part] : parts_) part->copy_own(sources_[tensor], targets_[tensor]);
  }

  bool advance() override {
    while (advances()) {
    }
    return finished();
  }

  bool finished() const {
    return (!shared_ || node_.finished()) && open_requests_ == 0 && send_requests_.empty() &&
           std::find(running_.begin(), running_.end(), 1) == running_.end();
  }

  /// Does what can be done now. \return whether anything was finished.
  bool advances() {
    bool any = shared_ && !node_.finished() && node_.progress(sources_, targets_);
    if (open_requests_ > 0) any |= unpack_arrivals();
    if (!send_requests_.empty()) any |= sends_completed();
    for (std::size_t i = 0; i < alone_.size(); ++i)
      if (running_[i] && alone_[i].second->progress()) {
        running_[i] = 0;
        any = true;
      }
    return any;
  }

  void begin_network() {
    requests_.clear();
    message_of_.clear();
    for (std::size_t m = 0; m < receives_.size(); ++m) {
      const JointMessage& message = receives_[m].message;
      post_receive(receive_buffer_.at(receives_[m].buffer_offset), message.nbytes, message.peer, requests_);
      receives_[m].open = requests_.size() - message_of_.size();
      message_of_.resize(requests_.size(), m);
    }
    open_requests_ = requests_.size();
    completed_.resize(requests_.size());
    for (const NetworkMessage& send : sends_) {
      char* const buffer = send_buffer_.at(send.buffer_offset);
      send.message.pack(sources_, buffer);
      post_send(buffer, send.message.nbytes, send.message.peer, send_requests_);
    }
  }

  bool unpack_arrivals() {
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count == MPI_UNDEFINED) return false;
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
      NetworkMessage& receive = receives_[message_of_[request]];
      if (--receive.open == 0) receive.message.unpack(receive_buffer_.at(receive.buffer_offset), targets_);
    }
    open_requests_ -= static_cast<std::size_t>(count);
    return count > 0;
  }

  bool sends_completed() {
    int done = 0;
    check(MPI_Testall(static_cast<int>(send_requests_.size()), send_requests_.data(), &done, MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (done) send_requests_.clear();
    return done;
  }

  template <class P>
  using Numbered = std::vector<std::pair<std::size_t, std::unique_ptr<P>>>;  // with the number of the tensor
  Numbered<JointPart> parts_;
  Numbered<Plan> alone_;
  NodeJointMessages node_;
  bool shared_ = false;            // messages within the node go through node_
  std::size_t partner_count_ = 1;  // ranks of this node, if so
  std::vector<NetworkMessage> sends_, receives_;
  Buffer send_buffer_, receive_buffer_;

  // Of the exchange at hand:
  std::vector<const char*> sources_;                   // [tensors]
  std::vector<char*> targets_;                         // [tensors]
  std::vector<char> running_;                          // [alone_]
  std::vector<MPI_Request> requests_, send_requests_;  // the former of receives
  std::size_t open_requests_ = 0;                      // of receives
  std::vector<std::size_t> message_of_;                // [receive requests]
  std::vector<int> completed_;                         // [receive requests]
};

}  // namespace

std::unique_ptr<Plan> make_joint_plan(const Description& description, MPI_Comm comm) {
  return Plan::make<JointPlan>(description, comm);
}

}  // namespace dace_redist
