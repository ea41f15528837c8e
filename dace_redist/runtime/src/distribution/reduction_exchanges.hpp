// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The exchanges, one after another, in which partial results are reduced on their way.

#include <functional>
#include <numeric>
#include <vector>

#include "distribution/schedule.hpp"

namespace dace_redist {

/// The exchanges of a reduction, where the replicas of the source hold partial results.
///
/// There are as many turns as the source has replicas: in each of them every part of the target gets one partial
/// result. Where the target has replicas, too, each of them gets its share only, and sends the others in a last
/// exchange what it has reduced: with s replicas of the source and t of the target, an element is moved s + t - 1 times
/// instead of s t times. Where that saves little, parts go to each replica as a whole, as another exchange would take
/// longer.
///
/// \param element_bytes  bytes of an element of the target; 0: it is larger than in a message, so nothing is shared.
inline std::vector<Senders> reduction_exchanges(const Distribution& source, const Distribution& target,
                                                Index element_bytes) {
  constexpr Index least_saved_bytes = 32 << 10;  // that a rank receives less
  const std::vector<Index> part = target.local_shape(target.first_rank());
  const Index part_bytes = std::accumulate(part.begin(), part.end(), element_bytes, std::multiplies<Index>());
  const Index saved_bytes = part_bytes / target.replicas() * (target.replicas() - 1) * (source.replicas() - 1);
  const bool shares = saved_bytes >= least_saved_bytes;
  std::vector<Senders> exchanges;
  for (Index turn = 0; turn < source.replicas(); ++turn) exchanges.push_back({Senders::turn, turn, shares});
  if (shares) exchanges.push_back({Senders::share, 0, false});
  return exchanges;
}

/// The messages of one rank in one of these exchanges; parameters as of make_schedule(). Those of the last exchange
/// come from, and go to, target arrays.
inline RankSchedule make_reduction_schedule(const Distribution& source, const Distribution& target, const IndexMap& map,
                                            Index rank, bool with_blocks, Senders senders) {
  if (senders.kind != Senders::share) return make_schedule(source, target, map, rank, with_blocks, {}, {}, senders);
  const IndexMap within(map.within_target(), target, target);
  return make_schedule(target, target, within, rank, with_blocks, {}, {}, senders);
}

}  // namespace dace_redist
