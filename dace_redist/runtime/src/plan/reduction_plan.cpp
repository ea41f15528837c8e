// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Reduces partial results on their way: the replicas of the source hold them.

#include <memory>
#include <vector>

#include "plan/registry.hpp"

namespace dace_redist {

/// As many exchanges as the source has replicas, one after another, all by one strategy. In each of them every part of
/// the target gets one partial result: it takes the first one, and reduces each further one with what is there. Parts
/// of the target begin with different replicas, so that in each exchange all replicas send. The order is fixed, so two
/// runs give the same bits, on all replicas of the target, too.
class ReductionPlan final : public Plan {
 private:
  void prepare() override {
    for (const std::unique_ptr<Plan>& turn : turns_)
      turn->set_local_arrays(description().source_local, description().target_local);
  }

  void connect() override {
    const Index replicas = Distribution(description().source, "source").replicas();
    const MakePlan make_turn = find_strategy(description().strategy);
    for (Index turn = 0; turn < replicas; ++turn) {
      Description one = description();
      one.senders = {Senders::turn, turn};
      if (turn == 0)
        one.operation.reduction = Reduction::none;
      else
        one.operation.beta = 0;
      turns_.push_back(make_turn(one, comm()));
    }
  }

  void exchange(const char* source, char* target) override {
    for (const std::unique_ptr<Plan>& turn : turns_) turn->run(source, target);
  }

  void begin(const char* source, char* target) override {
    source_ = source;
    target_ = target;
    at_ = 0;
    turns_[at_]->start(source, target);
  }

  bool advance() override {
    while (turns_[at_]->progress()) {
      if (++at_ == turns_.size()) return true;
      turns_[at_]->start(source_, target_);
    }
    return false;
  }

  std::vector<std::unique_ptr<Plan>> turns_;
  std::size_t at_ = 0;            // turn at hand, of a started exchange
  const char* source_ = nullptr;  // of that exchange
  char* target_ = nullptr;
};

MakePlan plan_maker(const Description& description) {
  const MakePlan make = find_strategy(description.strategy);
  const ElementOperation& operation = description.operation;
  if (operation.reduction == Reduction::none) return make;
  if (operation.reduction != Reduction::sum && operation.beta != 0.0) throw Error("beta goes with op sum only");
  return make_plan<ReductionPlan>;
}

}  // namespace dace_redist
