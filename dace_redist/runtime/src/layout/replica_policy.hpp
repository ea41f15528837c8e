// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Replicas of cells: which of them send and receive, and the exchanges of a reduction.
/// Start reading at: ReplicaPolicy.

#include <vector>

#include "layout/distribution.hpp"

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

}  // namespace dace_redist
