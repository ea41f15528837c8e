// SPDX-License-Identifier: BSD-3-Clause
#include "plan/registry.hpp"

#include <map>

#include "device/device_plan.hpp"

namespace dace_redist {
namespace {

struct Strategy {
  MakePlan make;
  OnNode on_node;
};

std::map<std::string, Strategy>& strategies() {
  static std::map<std::string, Strategy> all;  // made by the first strategy that registers, in whatever order
  return all;
}

const Strategy& strategy_named(const std::string& name) {
  const auto found = strategies().find(name);
  if (found != strategies().end()) return found->second;
  std::string known;
  for (const auto& [other, strategy] : strategies())
    if (other.find(' ') == std::string::npos) known += (known.empty() ? "" : ", ") + other;  // sums are no strategies
  throw Error(text("unknown strategy \"", name, "\"; there are ", known));
}

}  // namespace

void register_strategy(const std::string& name, MakePlan make, OnNode on_node) { strategies()[name] = {make, on_node}; }

MakePlan find_strategy(const std::string& name) { return strategy_named(name).make; }

OnNode on_node(const std::string& strategy) { return strategy_named(strategy).on_node; }

MakePlan strategy_maker(const Description& description) {
  const MakePlan make = find_strategy(description.strategy);
  return description.on_device() ? make_device_plan : make;
}

}  // namespace dace_redist
