// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Where an array lies.

#include <cstdint>

namespace dace_redist {

/// As dr_memory of the C interface.
enum class Memory : std::int64_t { host, device };

/// A queue of a device's work; null: the default stream.
using Stream = void*;

}  // namespace dace_redist
