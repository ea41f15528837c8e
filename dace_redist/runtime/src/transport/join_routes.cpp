// SPDX-License-Identifier: BSD-3-Clause
#include "transport/join_routes.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/agreement.hpp"
#include "core/cache_line.hpp"

namespace dace_redist {
namespace {

/// The parts of every rank of this node. Collective over `node`.
std::vector<JoinedPart> gather_parts(const Link& link, MPI_Comm node, const Messages& messages) {
  std::vector<JoinedPart> mine, all;
  std::vector<int> counts, displacements;
  all_or_none(node, [&] {
    for (const PeerMessage& message : messages.sends) mine.push_back({link.rank(), message.peer, message.nbytes});
    for (const PeerMessage& message : messages.receives) mine.push_back({message.peer, link.rank(), message.nbytes});
    counts.resize(link.topology.partners.size());
    displacements.resize(counts.size());
  });
  const auto nbytes = static_cast<int>(mine.size() * sizeof(JoinedPart));
  check(MPI_Allgather(&nbytes, 1, MPI_INT, counts.data(), 1, MPI_INT, node), "MPI_Allgather");
  for (std::size_t p = 1; p < counts.size(); ++p) displacements[p] = displacements[p - 1] + counts[p - 1];
  all_or_none(node,
              [&] { all.resize(static_cast<std::size_t>(displacements.back() + counts.back()) / sizeof(JoinedPart)); });
  check(MPI_Allgatherv(mine.data(), nbytes, MPI_BYTE, all.data(), counts.data(), displacements.data(), MPI_BYTE, node),
        "MPI_Allgatherv");
  return all;
}

/// Places the parts, and chooses the carriers: among senders from the first rank on, among receivers from the last one.
/// With few nodes they are not the same ranks.
void lay_out(JoinedMessage& message, std::size_t sending_node, std::size_t receiving_node) {
  std::vector<JoinedPart>& parts = message.parts;
  std::sort(parts.begin(), parts.end(), [](const JoinedPart& a, const JoinedPart& b) {
    return std::pair(a.sender, a.receiver) < std::pair(b.sender, b.receiver);
  });
  std::set<int> senders, receivers;
  for (JoinedPart& part : parts) {
    const bool next_sender = senders.insert(part.sender).second;
    part.offset = round_up(message.nbytes, next_sender ? cache_line_bytes : element_alignment);
    message.nbytes = part.offset + part.nbytes;
    receivers.insert(part.receiver);
  }
  const std::set<int>& ranks = message.sent ? senders : receivers;
  message.ranks.assign(ranks.begin(), ranks.end());
  message.carrier = *std::next(senders.begin(), static_cast<long>(receiving_node % senders.size()));
  message.peer = *std::next(receivers.rbegin(), static_cast<long>(sending_node % receivers.size()));
  if (!message.sent) std::swap(message.carrier, message.peer);
}

}  // namespace

std::vector<JoinedMessage> join_messages(const Link& link, MPI_Comm node, const Messages& messages) {
  const std::vector<int>& node_of = link.topology.node_of;
  std::map<int, std::size_t> number_of;  // by node
  for (const int lowest : node_of) number_of.insert({lowest, number_of.size()});
  const auto number = [&](int rank) { return number_of.at(node_of[static_cast<std::size_t>(rank)]); };
  const std::size_t here = number(link.rank()), nodes = number_of.size();
  std::map<std::pair<bool, std::size_t>, JoinedMessage> joined;  // received or not, and distance of the other node
  for (const JoinedPart& part : gather_parts(link, node, messages)) {
    const bool received = number(part.receiver) == here;
    const std::size_t other = number(received ? part.sender : part.receiver);
    joined[{received, (other + nodes - here) % nodes}].parts.push_back(part);
  }
  std::vector<JoinedMessage> made;
  for (auto& [key, message] : joined) {
    const std::size_t other = (here + key.second) % nodes;
    message.sent = !key.first;
    lay_out(message, message.sent ? here : other, message.sent ? other : here);
    made.push_back(std::move(message));
  }
  return made;
}

}  // namespace dace_redist
