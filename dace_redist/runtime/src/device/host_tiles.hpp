// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copies of a device made by the processor, with the index arithmetic of a GPU, thread by thread.

#include "device/tile_tables.hpp"

namespace dace_redist {

/// Copies at once, in the calling thread, in main memory.
void run_tiles(const TileLaunch& launch);

}  // namespace dace_redist
