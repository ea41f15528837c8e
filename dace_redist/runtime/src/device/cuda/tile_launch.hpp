// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Starts the kernels of a launch on a GPU.

#include "device/copy_tiles.hpp"

namespace dace_redist {

/// Enqueues a part on the calling thread's device. A failure is CUDA's last error.
void launch_tiles(const TilePart& part, const TileLaunch& launch, Stream stream);

}  // namespace dace_redist
