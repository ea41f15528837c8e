// SPDX-License-Identifier: BSD-3-Clause
#include "transport/joined_messages.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/agreement.hpp"
#include "core/machine.hpp"

namespace dace_redist {
namespace {

enum Side : std::size_t { sent, received };

/// Bytes of a part and the gap behind it.
Index padded(const PeerMessage& message) { return round_up(std::max<Index>(message.nbytes, 1), element_alignment); }

/// Replaces numbers by their sums, or another reduction, over all ranks of a node.
void reduce(std::vector<Index>& numbers, MPI_Op op, MPI_Comm node) {
  check(MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_INT64_T, op, node),
        "MPI_Allreduce");
}

/// Sums over the ranks of a node before this one.
void sum_before(const std::vector<Index>& numbers, std::vector<Index>& sums, MPI_Comm node) {
  check(MPI_Exscan(numbers.data(), sums.data(), static_cast<int>(sums.size()), MPI_INT64_T, MPI_SUM, node),
        "MPI_Exscan");
  if (comm_rank(node) == 0) std::fill(sums.begin(), sums.end(), 0);
}

/// Lays out the joined messages of a node. What one rank sends to one node is a row.
class Joiner {
 public:
  Joiner(const Topology& topology, int rank, const Messages& messages)
      : topology_(topology), lists_{&messages.sends, &messages.receives} {
    for (const int lowest : topology.node_of) numbers_.insert({lowest, numbers_.size()});
    nodes_ = numbers_.size();
    here_ = node(rank);
    before_.resize(topology.node_of.size());
    nbytes_.fill(before_);
    starts_.resize(nodes_);
    rows_.resize(nodes_);
    joined_.resize(2 * nodes_);
    ends_.resize(2 * nodes_);
    has_parts_.resize(2 * nodes_);
    all_have_parts_.resize(2 * nodes_ * topology.partners.size());
    for (const Side side : {sent, received})
      for (const PeerMessage& message : *lists_[side]) {
        nbytes_[side][static_cast<std::size_t>(message.peer)] = padded(message);
        has_parts_[number(side, node(message.peer))] = 1;
        if (side == sent) rows_[node(message.peer)] += padded(message);
      }
    for (Index& row : rows_) row = whole_lines(row);
  }

  /// Learns from the other ranks of the node what lies before this rank's rows and parts, and who has parts.
  void exchange(MPI_Comm node) {
    sum_before(rows_, starts_, node);
    sum_before(nbytes_[received], before_, node);
    for (std::vector<Index>& numbers : nbytes_) reduce(numbers, MPI_SUM, node);
    const auto count = static_cast<int>(has_parts_.size());
    check(MPI_Allgather(has_parts_.data(), count, MPI_CHAR, all_have_parts_.data(), count, MPI_CHAR, node),
          "MPI_Allgather");
  }

  void place_parts() {
    std::vector<Index> next(nodes_);  // offset of the next row that is received
    for (std::size_t sender = 0; sender < before_.size(); ++sender) {
      Index& row = next[node(static_cast<int>(sender))];
      before_[sender] += row;
      row += whole_lines(nbytes_[received][sender]);
    }
    std::vector<const PeerMessage*> ascending;  // by peer
    for (const Side side : {sent, received}) {
      ascending.clear();
      for (const PeerMessage& message : *lists_[side]) ascending.push_back(&message);
      std::sort(ascending.begin(), ascending.end(),
                [](const PeerMessage* a, const PeerMessage* b) { return a->peer < b->peer; });
      for (const PeerMessage* const message : ascending) {
        const std::size_t other = node(message->peer), joined = number(side, other);
        Index& offset = side == sent ? starts_[other] : before_[static_cast<std::size_t>(message->peer)];
        joined_[joined].parts.push_back({message->peer, offset});
        ends_[joined] = std::max(ends_[joined], offset + message->nbytes);
        offset += padded(*message);
      }
    }
  }

  void find_ends(MPI_Comm node) { reduce(ends_, MPI_MAX, node); }

  /// The joined messages, with their carriers.
  std::vector<JoinedMessage> messages() {
    std::vector<JoinedMessage> made;
    for (const Side side : {sent, received}) {
      std::vector<std::vector<int>> theirs(nodes_);  // ranks that have parts
      for (std::size_t rank = 0; rank < before_.size(); ++rank)
        if (nbytes_[side][rank] > 0) theirs[node(static_cast<int>(rank))].push_back(static_cast<int>(rank));
      for (std::size_t distance = 1; distance < nodes_; ++distance) {
        const std::size_t other = (here_ + distance) % nodes_, joined = number(side, other);
        if (theirs[other].empty()) continue;
        JoinedMessage& message = made.emplace_back(std::move(joined_[joined]));
        const std::vector<int> ours = ranks_with_parts(joined);
        message.sent = side == sent;
        message.nbytes = ends_[joined];
        message.ranks = ours.size();
        message.carrier = carrier(ours, other, side == sent);
        message.peer = carrier(theirs[other], here_, side == received);
      }
    }
    return made;
  }

 private:
  std::size_t node(int rank) const { return numbers_.at(topology_.node_of[static_cast<std::size_t>(rank)]); }
  std::size_t number(Side side, std::size_t other) const { return side * nodes_ + other; }

  std::vector<int> ranks_with_parts(std::size_t joined) const {
    std::vector<int> ranks;
    for (std::size_t p = 0; p < topology_.partners.size(); ++p)
      if (all_have_parts_[p * has_parts_.size() + joined]) ranks.push_back(topology_.partners[p]);
    return ranks;
  }

  /// The carrier of a message to or from a node. Of ranks that send the first one is chosen for node 0, of those that
  /// receive the last one: with few nodes they are not the same ranks.
  static int carrier(const std::vector<int>& ranks, std::size_t other, bool sends) {
    const std::size_t place = other % ranks.size();
    return ranks[sends ? place : ranks.size() - 1 - place];
  }

  const Topology& topology_;
  const std::array<const std::vector<PeerMessage>*, 2> lists_;  // [Side]
  std::map<int, std::size_t> numbers_;                          // of nodes, by their lowest ranks
  std::size_t nodes_ = 0, here_ = 0;
  std::array<std::vector<Index>, 2> nbytes_;      // [Side][ranks] padded: of this rank, then of all ranks of the node
  std::vector<Index> before_;                     // [ranks] of what each sends: bytes before the part of this rank
  std::vector<Index> rows_, starts_;              // [nodes] of this rank's row: its bytes, and what lies before it
  std::vector<char> has_parts_, all_have_parts_;  // [2 * nodes], and that of all ranks of the node
  std::vector<Index> ends_;                       // [2 * nodes]
  std::vector<JoinedMessage> joined_;             // [2 * nodes]
};

}  // namespace

/// Local steps that may fail precede an agreement of the ranks, since all others wait in MPI for this one.
std::vector<JoinedMessage> join_messages(const Topology& topology, int rank, MPI_Comm node, const Messages& messages) {
  std::optional<Joiner> joiner;
  all_or_none(node, [&] { joiner.emplace(topology, rank, messages); });
  joiner->exchange(node);
  all_or_none(node, [&] { joiner->place_parts(); });
  joiner->find_ends(node);
  return joiner->messages();
}

}  // namespace dace_redist
