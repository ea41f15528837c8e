// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The options of all strategies: defaults and ranges. Python reads this table through the binding.

#include <cstdint>
#include <limits>

#include "core/error.hpp"
#include "dace_redist_types.h"

namespace dace_redist {

using Options = dr_options;

/// An option: its name, member, default, minimum and maximum.
template <class T>
struct OptionRange {
  const char* name;
  T Options::*member;
  T initial, minimum, maximum;
};

/// Calls `visit` with the OptionRange of each option, in the order of the members of dr_options.
template <class Visit>
void each_option(const Visit& visit) {
  using Integer = std::int64_t;
  // Open MPI sends at once over TCP what fits 64 KiB with its header. Of longer messages it asks first; where both
  // sides send at the same time, the answers wait behind the data, and the link idles in one direction.
  visit(OptionRange<Integer>{"chunk_bytes", &Options::chunk_bytes, 60 << 10, 1, Integer{1} << 62});
  visit(OptionRange<Integer>{"depth", &Options::depth, 8, 1, 1 << 16});
  visit(OptionRange<double>{"growth", &Options::growth, 1.0, 1.0, 1e6});
  visit(OptionRange<Integer>{"threads", &Options::threads, 0, 0, 1 << 16});
  visit(OptionRange<Integer>{"slot_bytes", &Options::slot_bytes, 256 << 10, 1, 1 << 30});
  visit(OptionRange<Integer>{"max_message_bytes", &Options::max_message_bytes, 1 << 30, 1,
                             std::numeric_limits<int>::max()});
}

inline Options default_options() {
  Options options{};
  each_option([&](const auto& option) { options.*option.member = option.initial; });
  return options;
}

/// \throws Error if an option is out of range. Python checks numbers, but not the values of symbols.
inline void check_options(const Options& options) {
  each_option([&](const auto& option) {
    const auto value = options.*option.member;
    if (!(value >= option.minimum && value <= option.maximum))  // also if it is not a number
      throw Error(
          text("option ", option.name, " must be from ", option.minimum, " to ", option.maximum, ", got ", value));
  });
}

/// Aggregated: the largest message that is joined with others. Measured: joining longer ones takes longer than it saves
/// (docs/performance.md).
inline constexpr std::int64_t max_joined_bytes = std::int64_t{4} << 10;
/// Hierarchical: the largest message that is joined with others, if some rank sends or receives so many of them.
inline constexpr std::int64_t max_often_joined_bytes = 2 << 10, min_often_joined = 8;

}  // namespace dace_redist
