// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The exchanges, one after another, in which partial results are reduced on their way.

#include <vector>

#include "layout/schedule.hpp"

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
std::vector<Senders> reduction_exchanges(const Distribution& source, const Distribution& target, Index element_bytes);

/// The messages of one rank in one of these exchanges; parameters as of make_schedule(). Those of the last exchange
/// come from, and go to, target arrays.
RankSchedule make_reduction_schedule(const Distribution& source, const Distribution& target, const IndexMap& map,
                                     Index rank, bool with_blocks, Senders senders);

}  // namespace dace_redist
