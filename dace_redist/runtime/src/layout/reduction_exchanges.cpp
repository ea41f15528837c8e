// SPDX-License-Identifier: BSD-3-Clause
#include "layout/reduction_exchanges.hpp"

#include <functional>
#include <numeric>

namespace dace_redist {

std::vector<Senders> reduction_exchanges(const Distribution& source, const Distribution& target, Index element_bytes) {
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

RankSchedule make_reduction_schedule(const Distribution& source, const Distribution& target, const IndexMap& map,
                                     Index rank, bool with_blocks, Senders senders) {
  if (senders.kind != Senders::share) return make_schedule(source, target, map, rank, with_blocks, {}, {}, senders);
  const IndexMap within(map.within_target(), target, target);
  return make_schedule(target, target, within, rank, with_blocks, {}, {}, senders);
}

}  // namespace dace_redist
