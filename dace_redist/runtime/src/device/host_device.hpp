// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Main memory in the place of a device, for tests where there is no GPU: everything above the interface runs as it
/// does with one. Where a GPU orders nothing, this device orders nothing either: what is enqueued runs late, and
/// streams take turns at random, so that an event nobody waited for shows in the result.

#include "device/device.hpp"

namespace dace_redist {

/// Environment variable: `host` for the stand-in. Words after it, with commas between: `apart`, each rank has a device
/// of its own, which others do not reach; `aware`, MPI takes its addresses; `unnamed`, other ranks cannot map its
/// memory.
inline constexpr const char* device_variable = "DACE_REDIST_DEVICE";

/// The stand-in of this process. \throws Error if the environment variable has an unknown word.
Device& host_device();

}  // namespace dace_redist
