// SPDX-License-Identifier: BSD-3-Clause
// Joined messages of a topology that is larger than the program: its ranks play those of one node after another.
// Arguments: ranks of the topology, seed; 0: all to all, of the first node only. Prints the bytes that joining
// allocates.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <set>
#include <tuple>

#include "mpi_leaks.hpp"
#include "random.hpp"
#include "transport/joined_messages.hpp"

using namespace dace_redist;

namespace {

std::size_t allocated = 0, most = 0;  // bytes

using Part = std::tuple<int, int, Index>;  // sender, receiver, bytes

/// The joined message of all parts between two nodes, as the rank sees it.
JoinedMessage expected(std::vector<Part> parts, bool sent, int rank, std::size_t from, std::size_t to) {
  JoinedMessage message{sent, {}, 0, 0, 0, 0};
  std::set<int> senders, receivers;
  std::sort(parts.begin(), parts.end());
  for (const auto& [sender, receiver, nbytes] : parts) {
    const Index offset = round_up(message.nbytes, senders.insert(sender).second ? 64 : element_alignment);
    receivers.insert(receiver);
    message.nbytes = offset + nbytes;
    if (rank == (sent ? sender : receiver)) message.parts.push_back({sent ? receiver : sender, offset});
  }
  message.ranks = (sent ? senders : receivers).size();
  message.carrier = *std::next(senders.begin(), static_cast<long>(to % senders.size()));
  message.peer = *std::next(receivers.rbegin(), static_cast<long>(from % receivers.size()));
  if (!sent) std::swap(message.carrier, message.peer);
  return message;
}

bool equal(const JoinedMessage& a, const JoinedMessage& b) {
  const auto same = [](const JoinedPart& x, const JoinedPart& y) { return x.peer == y.peer && x.offset == y.offset; };
  return a.sent == b.sent && a.ranks == b.ranks && a.carrier == b.carrier && a.peer == b.peer && a.nbytes == b.nbytes &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), same);
}

}  // namespace

void* operator new(std::size_t nbytes) {
  auto* const bytes = static_cast<std::size_t*>(std::malloc(nbytes + 16));
  if (!bytes) throw std::bad_alloc();
  most = std::max(most, allocated += * bytes = nbytes);
  return bytes + 2;
}
void operator delete(void* bytes) noexcept {
  if (!bytes) return;
  auto* const start = static_cast<std::size_t*>(bytes) - 2;
  allocated -= *start;
  std::free(start);
}
void operator delete(void* bytes, std::size_t) noexcept { operator delete(bytes); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int here = comm_rank(MPI_COMM_WORLD), width = comm_size(MPI_COMM_WORLD), ranks = std::atoi(argv[1]);
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  Random random(seed);
  Topology topology;
  std::vector<std::vector<int>> nodes;
  std::vector<std::size_t> node_of;
  for (int rank = 0; rank < ranks; ++rank) {  // ranks of a node are not always neighbours
    std::size_t node = seed == 0 ? static_cast<std::size_t>(rank / width)
                                 : static_cast<std::size_t>(random.between(0, static_cast<Index>(nodes.size())));
    if (node < nodes.size() && static_cast<int>(nodes[node].size()) == width) node = nodes.size();
    if (node == nodes.size()) nodes.emplace_back();
    nodes[node].push_back(rank);
    node_of.push_back(node);
    topology.node_of.push_back(nodes[node].front());
  }
  std::vector<Part> parts;  // of all ranks, or of this one
  const auto add = [&](int sender, int receiver, Index nbytes) {
    if (node_of[static_cast<std::size_t>(sender)] != node_of[static_cast<std::size_t>(receiver)])
      parts.emplace_back(sender, receiver, nbytes);
  };
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; seed != 0 && b < ranks; ++b)
      if (random.one_in(4)) add(a, b, random.between(1, 200));
  for (int other = 0; seed == 0 && other < ranks; ++other) {
    add(here, other, 8);
    add(other, here, 8);
  }
  long checked = 0, wrong = 0;
  std::size_t bytes = 0;
  for (std::size_t node = 0; node < (seed == 0 ? 1 : nodes.size()); ++node) {
    const bool plays = here < static_cast<int>(nodes[node].size());
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, plays ? 0 : MPI_UNDEFINED, here, &comm);
    if (!plays) continue;
    topology.partners = nodes[node];
    const int rank = nodes[node][static_cast<std::size_t>(here)];
    Messages messages;
    std::map<std::pair<bool, std::size_t>, std::vector<Part>> between;  // received or not, distance of the other node
    for (const auto& [sender, receiver, nbytes] : parts) {
      const std::size_t from = node_of[static_cast<std::size_t>(sender)],
                        to = node_of[static_cast<std::size_t>(receiver)];
      if (sender == rank) messages.sends.push_back({receiver, nbytes, {}, 0, 0});
      if (receiver == rank) messages.receives.push_back({sender, nbytes, {}, 0, 0});
      if (seed != 0 && (from == node || to == node))
        between[{to == node, ((to == node ? from : to) + nodes.size() - node) % nodes.size()}].emplace_back(
            sender, receiver, nbytes);
    }
    std::reverse(messages.sends.begin(), messages.sends.end());
    const std::size_t before = allocated;
    most = before;
    const std::vector<JoinedMessage> joined = join_messages(topology, rank, comm, messages);
    bytes = most - before;
    auto found = joined.begin();
    for (const auto& [key, list] : between) {
      const std::size_t other = (node + key.second) % nodes.size();
      const JoinedMessage right = expected(list, !key.first, rank, key.first ? other : node, key.first ? node : other);
      ++checked;
      if (found == joined.end() || !equal(*found++, right)) ++wrong;
    }
    if (seed != 0) wrong += found != joined.end();
    MPI_Comm_free(&comm);
  }
  std::printf("%ld joined messages, %ld wrong; %zu bytes\n", checked, wrong, bytes);
  MPI_Finalize();
  return wrong != 0;
}
