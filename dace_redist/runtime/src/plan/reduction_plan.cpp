// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Reduces partial results on their way: the replicas of the source hold them.

#include <memory>
#include <utility>
#include <vector>

#include "layout/reduction_exchanges.hpp"
#include "node/node_reduction.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// The exchanges of reduction_exchanges(), all by one strategy; where that goes through the memory of a node, and all
/// ranks share one, the turns are a single exchange, in the same order for each element. Every part of the target takes
/// the first partial result, and reduces each further one with what is there. Parts of the target begin with different
/// replicas, so that in each exchange all replicas send. The order is fixed, so two runs give the same bits, on all
/// replicas of the target, too.
class ReductionPlan final : public Plan {
 private:
  /// One of the exchanges, and whether it is between the replicas of the target.
  struct Exchange {
    std::unique_ptr<Plan> plan;
    bool within_target = false;
  };

  void prepare() override {
    const Encoding &source = description().source_local, &target = description().target_local;
    for (const Exchange& one : exchanges_) one.plan->set_local_arrays(one.within_target ? target : source, target);
  }

  void connect() override {
    const Distribution source(description().source, "source"), target(description().target, "target");
    const Index target_bytes = element_bytes_of(description().operation.target);
    const Index whole_bytes = steps().message_bytes() == target_bytes ? target_bytes : 0;
    const std::vector<Senders> all = reduction_exchanges(source, target, whole_bytes);
    const bool together = add_single_exchange(source, target, all.front().to_shares);
    for (const Senders& senders : all) {
      const bool within_target = senders.kind == Senders::share;
      if (together && !within_target) continue;
      const Description one = within_target ? shares(source, target, target_bytes) : turn(senders);
      exchanges_.push_back({strategy_maker(one)(one, comm()), within_target});
    }
  }

  /// Adds one exchange of all turns, if that can be had. Collective.
  /// \return whether it was added, the same on all ranks.
  bool add_single_exchange(const Distribution& source, const Distribution& target, bool to_shares) {
    const bool several_cells = source.cells(rank()).size() > 1 || target.cells(rank()).size() > 1;
    if (source.replicas() == 1 || description().on_device() ||
        on_node(description().strategy) != OnNode::through_memory ||
        static_cast<int>(ranks_of_node(comm()).size()) < comm_size(comm()) || lowest_rank(comm(), several_cells) >= 0)
      return false;
    Description one = description();
    one.senders = {Senders::all, 0, to_shares};
    auto plan = Plan::make<NodeReductionPlan>(one, comm());
    if (!plan->uses_node_memory()) return false;
    exchanges_.push_back({std::move(plan), false});
    return true;
  }

  Description turn(const Senders& senders) const {
    Description one = description();
    one.senders = senders;
    one.operation = operation_for(one.operation, senders.number);
    return one;
  }

  Description shares(const Distribution& source, const Distribution& target, Index target_bytes) const {
    Description one = description();
    one.index_map = IndexMap(one.index_map, source, target).within_target();
    one.source = one.target;
    one.source_memory = one.target_memory;
    one.source_local = one.target_local;
    one.operation = {};
    one.element_bytes = target_bytes;
    one.senders = {Senders::share, 0, false};
    return one;
  }

  std::string missing_array(const void* source, const void* target) const override {
    for (const Exchange& one : exchanges_) {
      const std::string missing = one.plan->missing_array(one.within_target ? target : source, target);
      if (!missing.empty()) return one.within_target ? "target" : missing;
    }
    return "";
  }

  void set_stream(Stream stream) override {
    for (const Exchange& one : exchanges_) one.plan->set_stream(stream);
  }

  void exchange(const char* source, char* target) override {
    for (const Exchange& one : exchanges_) one.plan->run(one.within_target ? target : source, target);
  }

  void begin(const char* source, char* target) override {
    source_ = source;
    target_ = target;
    at_ = 0;
    exchanges_[at_].plan->start(source, target);
  }

  bool advance() override {
    while (exchanges_[at_].plan->progress()) {
      if (++at_ == exchanges_.size()) return true;
      exchanges_[at_].plan->start(exchanges_[at_].within_target ? target_ : source_, target_);
    }
    return false;
  }

  std::vector<Exchange> exchanges_;
  std::size_t at_ = 0;            // exchange at hand, of a started reduction
  const char* source_ = nullptr;  // of that reduction
  char* target_ = nullptr;
};

MakePlan plan_maker(const Description& description) {
  const MakePlan make = strategy_maker(description);
  const ElementOperation& operation = description.operation;
  if (operation.reduction == Reduction::none) return make;
  if (operation.reduction != Reduction::sum && operation.beta != 0.0) throw Error("beta goes with op sum only");
  return make_plan<ReductionPlan>;
}

}  // namespace dace_redist
