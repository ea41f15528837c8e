// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans of redistributions that a program may repeat.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "dace_redist.hpp"

namespace dace_redist::scalapack {

/// All that a plan is made from, but for leading dimensions, which differ between processes.
using Key = std::vector<std::int64_t>;

/// A redistribution that was asked for.
struct Entry {
  Key key;
  bool is_repeated = false;
  std::unique_ptr<dr_plan, dr::Free<dr_plan, dr_plan_free>> plan{};
  std::int64_t source_lld = 0, target_lld = 0;  ///< of the plan
};

/// The last redistributions of a set of processes, which all of them ask for in one order.
class Plans {
 public:
  /// The entry of a key, which may be new. A plan that no call has repeated is freed before the next one is made, which
  /// takes its memory: pages that are there already. At a second call it is made again, and stays.
  Entry& entry(Key key) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) { return one.key == key; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      entries_.front().is_repeated = true;
    } else {
      if (entries_.size() == max_entries) entries_.pop_back();
      entries_.push_front({std::move(key)});
    }
    std::for_each(std::next(entries_.begin()), entries_.end(), [](Entry& other) {
      if (!other.is_repeated) other.plan.reset();
    });
    return entries_.front();
  }

 private:
  static constexpr std::size_t max_entries = 64;  // a plan has some buffers, file descriptors and mappings
  std::list<Entry> entries_;                      // the last one first
};

}  // namespace dace_redist::scalapack
