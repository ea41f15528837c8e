// SPDX-License-Identifier: BSD-3-Clause
#include <functional>
#include <numeric>
#include <set>

#include "layout/schedule.hpp"

namespace dace_redist {

std::vector<ReplicaPolicy> steps_of_sums(Index replicas, bool in_order) {
  std::vector<ReplicaPolicy> steps{{ReplicaPolicy::sums_of_nodes, false, true},
                                   {ReplicaPolicy::sum_nodes, false, true}};
  if (!in_order) return steps;
  steps.clear();
  for (Index level = 0; level == 0 || (Index{1} << level) < replicas; ++level)
    steps.push_back({ReplicaPolicy::sums_of_nodes, false, true, true, level});
  steps.back().kind = ReplicaPolicy::sum_nodes;
  return steps;
}

bool shares_between_nodes(const Distribution& source, const Distribution& target, const std::vector<int>& nodes) {
  constexpr Index min_elements = Index{1} << 15;  // against one exchange more
  if (target.replicas() == 1 || !source.blocked()) return false;
  const auto nodes_with = [&](const Distribution& distribution) {
    std::set<int> found;
    for (Index rank = 0; rank < distribution.ranks_needed(); ++rank)
      if (!distribution.cells(rank).empty()) found.insert(nodes[static_cast<std::size_t>(rank)]);
    return found.size();
  };
  const std::vector<Index> shape = target.local_shape(target.first_rank());
  return checked_product(shape, "block") >= min_elements && nodes_with(target) > nodes_with(source) + 1;
}

bool scatters_target(const Distribution& source, const Distribution& target, Index element_bytes) {
  constexpr Index min_saved_bytes = 32 << 10;  // fewer bytes received by a rank, against one exchange more
  if (target.has_margins()) return false;      // replicas would not send each other their margins
  const std::vector<Index> shape = target.local_shape(target.first_rank());
  const Index bytes = std::accumulate(shape.begin(), shape.end(), element_bytes, std::multiplies<Index>());
  return bytes / target.replicas() * (target.replicas() - 1) * (source.replicas() - 1) >= min_saved_bytes;
}

}  // namespace dace_redist
