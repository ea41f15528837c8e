// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Who carries the messages between two nodes as one, and where each of them lies in it: agreed on once.

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "copy/copy_kernels.hpp"
#include "core/element_type.hpp"
#include "core/mpi.hpp"
#include "layout/distribution.hpp"
#include "node/advertised_segment.hpp"
#include "node/message_state.hpp"

namespace dace_redist {

/// A message of this rank to or from a rank of another node, as a part of a joined message.
struct JoinedPart {
  int peer = 0;
  Index nbytes = 0;
  Index offset = 0;  ///< bytes, in the joined message
};

/// The end of a joined message on this node.
struct JoinedEnd {
  std::vector<int> ranks;   ///< that have parts in it, ascending
  int carrier = 0;          ///< the one of them that sends or receives it
  int peer = 0;             ///< the carrier on the other node
  Index nbytes = 0;         ///< of the whole message
  Index offset = 0;         ///< bytes, of what this rank packs into it
  Index buffer_offset = 0;  ///< bytes, in the carrier's segment
};

/// The joined messages in which this rank has parts. A joined message holds what each of its ranks sends, one rank
/// after another, from a cache line on; of a rank, a part for each receiver.
///
/// The carriers are chosen among the ranks that have parts in a message, by turns, so that all ranks of a node send
/// and receive.
class JoinedRoutes {
 public:
  enum Direction : std::size_t { sending, receiving };
  static constexpr std::array<Direction, 2> directions{sending, receiving};

  /// Agrees with the other ranks. Collective.
  /// \param node_of  the lowest rank of each rank's node.
  /// \param partners  the ranks of this node, ascending.
  /// \param sends, receives  this rank's messages that are to be joined.
  JoinedRoutes(MPI_Comm comm, int tag, const std::vector<int>& node_of, const std::vector<int>& partners,
               std::vector<JoinedPart> sends, std::vector<JoinedPart> receives)
      : parts_{std::move(sends), std::move(receives)},
        partners_(partners),
        rank_(comm_rank(comm)),
        node_(node_communicator(comm)),
        node_of_(node_of) {
    find_ends();
    tell_peers(comm, tag);
  }

  const std::vector<JoinedPart>& parts(Direction direction) const { return parts_[direction]; }
  /// By the lowest rank of the other node.
  std::map<int, JoinedEnd>& ends(Direction direction) { return ends_[direction]; }
  /// The lowest rank of the node that a rank is on.
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int rank() const { return rank_; }

  /// Tells the ranks of this node where the buffers lie that this rank allocated. Collective.
  /// \return the segment of each rank that carries a message for this one.
  std::map<int, SegmentEndpoint> exchange_endpoints(const SegmentEndpoint& mine) {
    Encoding told{mine.segment.process, mine.segment.descriptor, mine.segment.nbytes, static_cast<Index>(mine.number)};
    for (const Direction direction : directions)
      for (const auto& [node, end] : ends_[direction])
        if (end.carrier == rank_) told.insert(told.end(), {static_cast<Index>(direction), node, end.buffer_offset});
    const std::vector<Encoding> all = gather(told);
    std::map<int, SegmentEndpoint> segments;
    for (std::size_t p = 0; p < all.size(); ++p) {
      const Encoding& theirs = all[p];
      for (std::size_t at = 4; at < theirs.size(); at += 3) {
        std::map<int, JoinedEnd>& ends = ends_[static_cast<std::size_t>(theirs[at])];
        const auto end = ends.find(static_cast<int>(theirs[at + 1]));
        if (end == ends.end()) continue;
        end->second.buffer_offset = theirs[at + 2];
        segments[partners_[p]] = {{theirs[0], theirs[1], theirs[2]}, static_cast<std::uint64_t>(theirs[3])};
      }
    }
    return segments;
  }

 private:
  /// What a rank tells those it has messages for, or from.
  struct Notice {
    Index offset = 0, nbytes = 0;  // from a sender: of the part, and bytes of the whole
    Index carrier = 0;             // on its node
  };

  /// Finds out who of this node has parts in which messages, and who carries them; keeps those of this rank.
  void find_ends() {
    Encoding mine;
    for (const Direction direction : directions) {
      std::map<int, Index> nbytes;  // by node
      for (JoinedPart& part : parts_[direction]) {
        Index& before = nbytes[node_of(part.peer)];
        part.offset = before;
        before += ceil_div(part.nbytes, element_alignment) * element_alignment;
      }
      for (const auto& [node, total] : nbytes)
        mine.insert(mine.end(),
                    {static_cast<Index>(direction), node, ceil_div(total, detail::line_bytes) * detail::line_bytes});
    }
    const std::vector<Encoding> all = gather(mine);
    for (std::size_t p = 0; p < all.size(); ++p)
      for (std::size_t at = 0; at < all[p].size(); at += 3) {
        JoinedEnd& end = ends_[static_cast<std::size_t>(all[p][at])][static_cast<int>(all[p][at + 1])];
        end.ranks.push_back(partners_[p]);
        if (partners_[p] == rank_) end.offset = end.nbytes;
        end.nbytes += all[p][at + 2];
      }
    for (const Direction direction : directions) {
      choose_carriers(direction);
      for (auto end = ends_[direction].begin(); end != ends_[direction].end();) {
        const std::vector<int>& ranks = end->second.ranks;
        end = std::binary_search(ranks.begin(), ranks.end(), rank_) ? std::next(end) : ends_[direction].erase(end);
      }
    }
    for (JoinedPart& part : parts_[sending]) part.offset += ends_[sending][node_of(part.peer)].offset;
  }

  /// Senders from the first rank on, receivers from the last one: with few nodes they are not the same ranks.
  void choose_carriers(Direction direction) {
    std::size_t turn = 0;
    for (auto& [node, end] : ends_[direction]) {
      const std::size_t at = turn++ % end.ranks.size();
      end.carrier = direction == sending ? end.ranks[at] : end.ranks[end.ranks.size() - 1 - at];
    }
  }

  /// Tells the receivers where their parts lie, and all peers who carries the message.
  void tell_peers(MPI_Comm comm, int tag) {
    std::array<std::vector<Notice>, 2> told, heard;
    std::vector<MPI_Request> requests;
    constexpr int nbytes = sizeof(Notice);
    for (const Direction direction : directions) {
      heard[direction].resize(parts_[direction].size());
      for (const JoinedPart& part : parts_[direction]) {
        const JoinedEnd& end = ends_[direction][node_of(part.peer)];
        told[direction].push_back({part.offset, end.nbytes, end.carrier});
      }
    }
    for (const Direction direction : directions)
      for (std::size_t i = 0; i < parts_[direction].size(); ++i) {
        const int peer = parts_[direction][i].peer;
        // in one direction both ranks may have a message for each other: the tags tell which notice is of which
        const int mine = tag + static_cast<int>(direction), theirs = tag + 1 - static_cast<int>(direction);
        check(MPI_Irecv(&heard[direction][i], nbytes, MPI_BYTE, peer, theirs, comm, &requests.emplace_back()),
              "MPI_Irecv");
        check(MPI_Isend(&told[direction][i], nbytes, MPI_BYTE, peer, mine, comm, &requests.emplace_back()),
              "MPI_Isend");
      }
    wait_all(requests);
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
  std::vector<Encoding> gather(const Encoding& mine) const {
    const int count = static_cast<int>(mine.size());
    std::vector<int> counts(partners_.size()), displacements(partners_.size());
    check(MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, node_.get()), "MPI_Allgather");
    for (std::size_t p = 1; p < counts.size(); ++p) displacements[p] = displacements[p - 1] + counts[p - 1];
    Encoding all(static_cast<std::size_t>(displacements.back() + counts.back()));
    check(MPI_Allgatherv(mine.data(), count, MPI_INT64_T, all.data(), counts.data(), displacements.data(), MPI_INT64_T,
                         node_.get()),
          "MPI_Allgatherv");
    std::vector<Encoding> by_rank;
    for (std::size_t p = 0; p < counts.size(); ++p) {
      const auto first = all.begin() + displacements[p];
      by_rank.emplace_back(first, first + counts[p]);
    }
    return by_rank;
  }

  std::array<std::vector<JoinedPart>, 2> parts_;
  std::array<std::map<int, JoinedEnd>, 2> ends_;
  std::vector<int> partners_;
  int rank_;
  Communicator node_;
  const std::vector<int>& node_of_;  // [ranks]
};

}  // namespace dace_redist
