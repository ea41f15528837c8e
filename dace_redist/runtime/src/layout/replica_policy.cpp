// SPDX-License-Identifier: BSD-3-Clause
#include "layout/replica_policy.hpp"

#include <functional>
#include <numeric>

namespace dace_redist {

std::vector<ReplicaPolicy> reduction_exchanges(const Distribution& source, const Distribution& target,
                                               Index element_bytes) {
  constexpr Index min_saved_bytes = 32 << 10;  // fewer bytes received by a rank, against one exchange more
  const std::vector<Index> shape = target.local_shape(target.first_rank());
  const Index bytes = std::accumulate(shape.begin(), shape.end(), element_bytes, std::multiplies<Index>());
  const Index saved_bytes = bytes / target.replicas() * (target.replicas() - 1) * (source.replicas() - 1);
  const bool scatter = saved_bytes >= min_saved_bytes;
  std::vector<ReplicaPolicy> exchanges;
  for (Index turn = 0; turn < source.replicas(); ++turn)
    exchanges.push_back({ReplicaPolicy::round_robin, turn, scatter});
  if (scatter) exchanges.push_back({ReplicaPolicy::allgather, 0, false});
  return exchanges;
}

}  // namespace dace_redist
