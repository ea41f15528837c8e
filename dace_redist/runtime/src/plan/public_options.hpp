// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Options as the C interface has them, and as the strategies have them.

#include "dace_redist.h"
#include "plan/options.hpp"

namespace dace_redist {

/// The options that the caller of the C interface gave.
inline Options internal_options(const dr_options& options) {
  Options result;
  result.chunk_bytes = options.chunk_bytes;
  result.depth = options.depth;
  result.growth = options.growth;
  result.threads = options.threads;
  result.slot_bytes = options.slot_bytes;
  result.max_message_bytes = options.max_message_bytes;
  return result;
}

/// The same the other way round.
inline dr_options public_options(const Options& options) {
  return {options.chunk_bytes, options.depth,      options.growth,
          options.threads,     options.slot_bytes, options.max_message_bytes};
}

}  // namespace dace_redist
