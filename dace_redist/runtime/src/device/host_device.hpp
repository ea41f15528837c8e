// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Main memory in the place of a device, for tests where there is no GPU: everything above the interface runs as it
/// does with one. Where a GPU orders nothing, this device orders nothing either: what is enqueued runs late, and
/// streams take turns at random, so that an event nobody waited for shows in the result. It is a library of its own,
/// libdace_redist_host_device.

#include <string>

#include "core/error.hpp"

namespace dace_redist {

/// Environment variable: `host` for the stand-in. Words after it, with commas between: `apart`, each rank has a device
/// of its own, which others do not reach; `aware`, MPI takes its addresses; `unnamed`, other ranks cannot map its
/// memory; `pooled`, they can map what plans allocate, but not what programs do, as with CUDA's stream-ordered
/// allocator.
inline constexpr const char* device_variable = "DACE_REDIST_DEVICE";

/// What is said of another word in the environment variable.
inline Error unknown_word(const std::string& word) {
  return Error(text(device_variable, ": expected cuda, or host with the words apart, aware, pooled and unnamed, got \"",
                    word, "\""));
}

}  // namespace dace_redist
