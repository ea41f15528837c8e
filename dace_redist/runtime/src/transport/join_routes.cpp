// SPDX-License-Identifier: BSD-3-Clause
#include "transport/join_routes.hpp"

#include <algorithm>
#include <iterator>

#include "core/cache_line.hpp"
#include "core/exchange_records.hpp"

namespace dace_redist {
namespace {

/// What a rank tells those it has messages for, or from.
struct Notice {
  Index offset = 0, nbytes = 0;  // from a sender: of the part, and bytes of the whole
  Index carrier = 0;             // on its node
};

}  // namespace

JoinedRoutes::JoinedRoutes(const Link& link, MPI_Comm node, std::vector<JoinedPart> sends,
                           std::vector<JoinedPart> receives)
    : link_(link), node_(node), parts_{std::move(sends), std::move(receives)} {
  find_ends();
  tell_peers();
}

void JoinedRoutes::exchange_offsets() {
  std::vector<Index> told;
  for (const Direction direction : directions)
    for (const auto& [node, end] : ends_[direction])
      if (end.carrier == rank()) told.insert(told.end(), {static_cast<Index>(direction), node, end.buffer_offset});
  const std::vector<std::vector<Index>> all = gather(told);
  for (const std::vector<Index>& theirs : all)
    for (std::size_t at = 0; at < theirs.size(); at += 3) {
      std::map<int, JoinedEnd>& ends = ends_[static_cast<std::size_t>(theirs[at])];
      const auto end = ends.find(static_cast<int>(theirs[at + 1]));
      if (end != ends.end()) end->second.buffer_offset = theirs[at + 2];
    }
}

/// Finds out who of this node has parts in which messages, and who carries them; keeps those of this rank.
void JoinedRoutes::find_ends() {
  std::vector<Index> mine;
  for (const Direction direction : directions) {
    std::map<int, Index> nbytes;  // by node
    for (JoinedPart& part : parts_[direction]) {
      Index& before = nbytes[node_of(part.peer)];
      part.offset = before;
      before += ceil_div(part.nbytes, element_alignment) * element_alignment;
    }
    for (const auto& [node, total] : nbytes)
      mine.insert(mine.end(), {static_cast<Index>(direction), node, whole_lines(total)});
  }
  const std::vector<std::vector<Index>> all = gather(mine);
  for (std::size_t p = 0; p < all.size(); ++p)
    for (std::size_t at = 0; at < all[p].size(); at += 3) {
      JoinedEnd& end = ends_[static_cast<std::size_t>(all[p][at])][static_cast<int>(all[p][at + 1])];
      end.ranks.push_back(link_.topology.partners[p]);
      if (link_.topology.partners[p] == rank()) end.offset = end.nbytes;
      end.nbytes += all[p][at + 2];
    }
  for (const Direction direction : directions) {
    choose_carriers(direction);
    for (auto end = ends_[direction].begin(); end != ends_[direction].end();) {
      const std::vector<int>& ranks = end->second.ranks;
      end = std::binary_search(ranks.begin(), ranks.end(), rank()) ? std::next(end) : ends_[direction].erase(end);
    }
  }
  for (JoinedPart& part : parts_[sending]) part.offset += ends_[sending][node_of(part.peer)].offset;
}

/// Senders from the first rank on, receivers from the last one: with few nodes they are not the same ranks.
void JoinedRoutes::choose_carriers(Direction direction) {
  std::size_t turn = 0;
  for (auto& [node, end] : ends_[direction]) {
    const std::size_t at = turn++ % end.ranks.size();
    end.carrier = direction == sending ? end.ranks[at] : end.ranks[end.ranks.size() - 1 - at];
  }
}

/// Tells the receivers where their parts lie, and all peers who carries the message.
void JoinedRoutes::tell_peers() {
  std::array<std::vector<Notice>, 2> told, heard;
  std::array<std::vector<int>, 2> peers;
  for (const Direction direction : directions)
    for (const JoinedPart& part : parts_[direction]) {
      const JoinedEnd& end = ends_[direction][node_of(part.peer)];
      told[direction].push_back({part.offset, end.nbytes, end.carrier});
      peers[direction].push_back(part.peer);
    }
  // senders tell receivers, then receivers senders
  heard[receiving] = exchange_records(link_.comm(), link_.tag, peers[sending], told[sending], peers[receiving]);
  heard[sending] = exchange_records(link_.comm(), link_.tag + 1, peers[receiving], told[receiving], peers[sending]);
  for (const Direction direction : directions)
    for (std::size_t i = 0; i < parts_[direction].size(); ++i) {
      JoinedEnd& end = ends_[direction][node_of(parts_[direction][i].peer)];
      end.peer = static_cast<int>(heard[direction][i].carrier);
      if (direction == sending) continue;
      end.nbytes = heard[direction][i].nbytes;
      parts_[direction][i].offset = heard[direction][i].offset;
    }
}

/// The numbers of every rank of this node. Collective.
std::vector<std::vector<Index>> JoinedRoutes::gather(const std::vector<Index>& mine) const {
  const int count = static_cast<int>(mine.size());
  std::vector<int> counts(link_.topology.partners.size()), displacements(link_.topology.partners.size());
  check(MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, node_), "MPI_Allgather");
  for (std::size_t p = 1; p < counts.size(); ++p) displacements[p] = displacements[p - 1] + counts[p - 1];
  std::vector<Index> all(static_cast<std::size_t>(displacements.back() + counts.back()));
  check(MPI_Allgatherv(mine.data(), count, MPI_INT64_T, all.data(), counts.data(), displacements.data(), MPI_INT64_T,
                       node_),
        "MPI_Allgatherv");
  std::vector<std::vector<Index>> by_rank;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    const auto first = all.begin() + displacements[p];
    by_rank.emplace_back(first, first + counts[p]);
  }
  return by_rank;
}

}  // namespace dace_redist
