// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The strategies by name. A strategy's source file registers it; nothing else needs to know of it. It may be compiled
/// into a library of its own, which registers it when it is loaded.

#include <memory>
#include <string>

#include "dace_redist.h"
#include "plan/plan.hpp"

namespace dace_redist {

/// Makes a plan; collective, see Plan::make().
using MakePlan = std::unique_ptr<Plan> (*)(const Description& description, MPI_Comm comm);

/// How a strategy moves what stays on a node.
enum class OnNode { as_elsewhere, through_memory };

/// Adds a strategy under its name, replacing one of the same name.
/// \param on_node  through_memory: ranks of one node may reduce partial results there, see NodeReductionPlan.
DR_API void register_strategy(const std::string& name, MakePlan make, OnNode on_node = OnNode::as_elsewhere);

/// \throws Error if there is no strategy of that name; names those there are.
MakePlan find_strategy(const std::string& name);

/// How a strategy was registered. \throws Error as find_strategy().
OnNode on_node(const std::string& strategy);

/// Makes plans by the strategy of a description where its arrays lie. \throws Error as find_strategy().
MakePlan strategy_maker(const Description& description);

/// The same for a description that may reduce partial results. \throws Error as find_strategy().
MakePlan plan_maker(const Description& description);

/// Makes plans of type `P`.
template <class P>
std::unique_ptr<Plan> make_plan(const Description& description, MPI_Comm comm) {
  return Plan::make<P>(description, comm);
}

/// A static object of this type in the source file of strategy `P` registers it when the library is loaded.
template <class P>
struct RegisteredStrategy {
  explicit RegisteredStrategy(const char* name, MakePlan make = make_plan<P>) { register_strategy(name, make); }
  RegisteredStrategy(const char* name, OnNode on_node) { register_strategy(name, make_plan<P>, on_node); }
};

}  // namespace dace_redist
