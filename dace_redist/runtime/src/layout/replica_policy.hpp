// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Replicas of cells: which of them send and receive, and the exchanges of a reduction.
/// Start reading at: ReplicaPolicy.

#include <vector>

#include "layout/distribution.hpp"
#include "layout/index_map.hpp"

namespace dace_redist {

/// The replicas of a source cell that send to each replica of a target cell.
struct ReplicaPolicy {
  enum Kind {
    any,          ///< one of them: the receiver itself if it holds the cell
    all,          ///< each of them; the receiver reduces their messages in the order of Message::turn
    round_robin,  ///< the one whose turn is `turn`: an exchange for each turn of `all`
    allgather,    ///< source and target are one distribution: each replica sends its slice to the other replicas
  };
  Kind kind = any;
  Index turn = 0;               ///< of round_robin
  bool scatter_target = false;  ///< of all and round_robin: each replica of the target receives only its 1/n slice
};

/// The exchanges, one after another, in which partial results are reduced. The replicas of the source hold them.
///
/// In each turn every cell of the target receives one partial result. If the target has replicas, each of them may
/// receive its slice only and send the reduced slice to the others in a last exchange: with s replicas of the source
/// and t of the target, an element moves s + t - 1 times instead of s t times. Slices are left out if they save little.
///
/// \param element_bytes  of the target; 0 if they are larger than in a message: the target is not cut into slices.
std::vector<ReplicaPolicy> reduction_exchanges(const Distribution& source, const Distribution& target,
                                               Index element_bytes);

/// A rank that one rank exchanges a pair of cells with.
struct ReplicaPeer {
  Index rank = 0;
  Index turn = 0;  ///< order in which the receiver reduces; equal on both sides
};

/// In place of the number of a slice: all of a target cell. Else cells have as many slices as the target has replicas.
inline constexpr Index whole_cell = -1;

/// A policy applied to a source and a target. Keeps references to both.
class ReplicaRoutes {
 public:
  ReplicaRoutes(const Distribution& source, const Distribution& target, const ReplicaPolicy& policy);

  /// The slices of target cells that a rank sends, or receives.
  std::vector<Index> sent_slices(Index rank) const;
  std::vector<Index> received_slices(Index rank) const;

  /// The window of a source axis that holds a slice, by the indices that the target cell owns along `target_axis`.
  IndexMap::Window window(const IndexMap::Window& moved, const Intervals& target_cell, int target_axis,
                          Index slice) const;

  /// Sets `peers` to the receivers of a slice of two cells, from `rank`, which holds the source cell.
  void find_receivers(Index rank, const Cell& source, const Cell& target, Index slice,
                      std::vector<ReplicaPeer>& peers) const;
  /// Sets `peers` to the senders of a slice of two cells, to `rank`, which holds the target cell.
  void find_senders(Index rank, const Cell& source, const Cell& target, Index slice,
                    std::vector<ReplicaPeer>& peers) const;

 private:
  bool in_this_exchange(Index turn) const { return policy_.kind != ReplicaPolicy::round_robin || turn == policy_.turn; }
  Index first_sender(const Cell& target, Index slice) const;

  const Distribution &source_, &target_;
  ReplicaPolicy policy_;
  int slice_axis_ = -1;  // of the target; -1: cells are not cut into slices
};

}  // namespace dace_redist
