// SPDX-License-Identifier: BSD-3-Clause
#include "plan/registry.hpp"

#include <map>

#include "device/device_plan.hpp"

namespace dace_redist {
namespace {

std::map<std::string, MakePlan>& strategies() {
  static std::map<std::string, MakePlan> all;  // made by the first strategy that registers, in whatever order
  return all;
}

}  // namespace

void register_strategy(const std::string& name, MakePlan make) { strategies()[name] = make; }

MakePlan find_strategy(const std::string& name) {
  const auto found = strategies().find(name);
  if (found != strategies().end()) return found->second;
  std::string known;
  for (const auto& [other, make] : strategies())
    if (other.find(' ') == std::string::npos) known += (known.empty() ? "" : ", ") + other;  // sums are no strategies
  throw Error(text("unknown strategy \"", name, "\"; there are ", known));
}

MakePlan strategy_maker(const Description& description) {
  const MakePlan make = find_strategy(description.strategy);
  return description.on_device() ? make_device_plan : make;
}

}  // namespace dace_redist
