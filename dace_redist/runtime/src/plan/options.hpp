// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The options of all strategies: their defaults and what they may be. Python reads this table through the binding.

#include <limits>

#include "core/error.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// Options of all strategies; one that a strategy does not name is not used by it.
struct Options {
  /// Pipelined, Hierarchical: largest chunk. By default what Open MPI still sends at once over TCP (64 KiB with its
  /// header): of longer messages it asks first, and where both sides send at the same time, the answers wait behind
  /// the data and the link idles in one direction.
  Index chunk_bytes = Index{60} << 10;
  Index depth = 8;                           ///< Pipelined: chunks in flight per direction
  double growth = 1.0;                       ///< Pipelined: each chunk of a message this much larger than the last
  Index threads = 0;                         ///< Threaded: threads per rank; 0: what OpenMP has
  Index slot_bytes = Index{256} << 10;       ///< Shared: largest piece handed over at once
  Index max_message_bytes = Index{1} << 30;  ///< all: longest single MPI message; longer ones are split
};

/// Aggregated: most bytes of a message that is joined with others. Measured: joining longer ones takes longer than it
/// saves (docs/performance.md).
inline constexpr Index most_joined_bytes = Index{4} << 10;

/// One option: its name, where it is, and its smallest and largest value.
template <class T>
struct OptionRange {
  const char* name;
  T Options::*member;
  T minimum, maximum;
};

/// Calls `visit` with the OptionRange of each option.
template <class Visit>
void each_option(const Visit& visit) {
  visit(OptionRange<Index>{"chunk_bytes", &Options::chunk_bytes, 1, Index{1} << 62});
  visit(OptionRange<Index>{"depth", &Options::depth, 1, 1 << 16});
  visit(OptionRange<double>{"growth", &Options::growth, 1.0, 1e6});
  visit(OptionRange<Index>{"threads", &Options::threads, 0, 1 << 16});
  visit(OptionRange<Index>{"slot_bytes", &Options::slot_bytes, 1, 1 << 30});
  visit(OptionRange<Index>{"max_message_bytes", &Options::max_message_bytes, 1, std::numeric_limits<int>::max()});
}

inline bool operator==(const Options& left, const Options& right) {
  bool equal = true;
  each_option([&](const auto& option) { equal = equal && left.*option.member == right.*option.member; });
  return equal;
}

/// \throws Error if an option is out of range; Python checks numbers, but not what a symbol turns out to be.
inline void check_options(const Options& options) {
  each_option([&](const auto& option) {
    const auto value = options.*option.member;
    if (!(value >= option.minimum && value <= option.maximum))  // also if it is not a number
      throw Error(
          text("option ", option.name, " must be from ", option.minimum, " to ", option.maximum, ", got ", value));
  });
}

}  // namespace dace_redist
