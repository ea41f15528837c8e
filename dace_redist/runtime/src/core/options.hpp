// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The options of all strategies: defaults and ranges; numbers in the environment; limits that Python knows, too.
/// Python reads them through the binding.

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

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
  visit(OptionRange<Integer>{"join_bytes", &Options::join_bytes, -1, -1, 1 << 30});
  visit(OptionRange<Integer>{"max_in_flight_bytes", &Options::max_in_flight_bytes, 0, 0, Integer{1} << 62});
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

/// A number in an environment variable, at least 0; none if it is not set. \param expected  what it counts, for errors.
/// \throws Error if the variable is set to anything else.
inline std::optional<std::int64_t> environment_number(const char* name, const char* expected,
                                                      std::int64_t maximum = std::numeric_limits<std::int64_t>::max()) {
  const char* const value = std::getenv(name);
  if (!value) return {};
  char* end = nullptr;
  const long long number = std::strtoll(value, &end, 10);
  if (end == value || *end != '\0' || number < 0 || number > maximum)
    throw Error(text(name, ": expected a number of ", expected, ", got \"", value, "\""));
  return number;
}

/// Of redistributions of messages up to this many bytes, several are joined into one exchange (docs/performance.md).
inline constexpr std::int64_t max_joined_bytes = std::int64_t{4} << 10;
/// Without `join_bytes`: the largest message between nodes that is joined with others, if some rank sends or receives
/// so many of them. Measured: joining longer ones takes longer than it saves (docs/performance.md).
inline constexpr std::int64_t max_often_joined_bytes = 2 << 10, min_often_joined = 8;

/// Within a node, messages of up to this many bytes are staged at once: the receiver need not say first where its
/// arrays lie.
inline constexpr std::int64_t max_eager_bytes = 8 << 10;
/// A rank that sends to more ranks of its node stages shorter pieces, of this many bytes at least.
inline constexpr std::int64_t many_receivers = 16, min_many_part_bytes = 4 << 10;
/// Runs from this length on, in bytes, are read by the kernel in the first transfer: a second copy takes longer.
inline constexpr std::int64_t min_remote_run = 128 << 10;
/// Runs from this length on, in bytes, are read if that was measured to be faster: it depends on the machine.
inline constexpr std::int64_t min_tried_run = 2 << 10;
/// Runs up to this length, in bytes, of a large source that has some for each of several receivers, are not pulled:
/// each receiver would fetch whole cache lines, and prefetch further ones, but needs a part of them. The sender reads
/// every line once.
inline constexpr std::int64_t max_scattered_run = 256, several_receivers = 2;

}  // namespace dace_redist
