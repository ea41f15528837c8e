// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Options as the C interface has them, and as the strategies have them.

#include "copy/element_operation.hpp"
#include "dace_redist.h"
#include "device/device.hpp"
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

/// The operation that the caller of the C interface gave. \throws Error if a number is none of its enumeration.
inline ElementOperation internal_operation(const dr_operation& operation) {
  const auto checked = [](int value, std::int64_t count, const char* name) {
    if (value < 0 || value >= count) throw Error(text(name, " must be from 0 to ", count - 1, ", got ", value));
    return value;
  };
  ElementOperation result;
  result.source = static_cast<ElementType>(checked(operation.source_type, element_type_count, "source_type"));
  result.target = static_cast<ElementType>(checked(operation.target_type, element_type_count, "target_type"));
  result.alpha = {operation.alpha[0], operation.alpha[1]};
  result.beta = {operation.beta[0], operation.beta[1]};
  result.conjugate = operation.conjugate != 0;
  result.reduction = static_cast<Reduction>(checked(operation.op, reduction_count, "op"));
  return result;
}

/// Where the caller of the C interface says that an array lies. \throws Error if the number is none of dr_memory.
inline Memory internal_memory(int memory, const char* name) {
  if (memory != DR_MAIN_MEMORY && memory != DR_DEVICE_MEMORY)
    throw Error(text(name, " must be DR_MAIN_MEMORY or DR_DEVICE_MEMORY, got ", memory));
  return static_cast<Memory>(memory);
}

/// Elements are copied.
inline dr_operation public_copy() { return {DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP}; }

}  // namespace dace_redist
