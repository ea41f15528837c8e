// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copy of one strided block. All copy loops of the project are in copy.cpp and the headers that it includes.
/// Start reading at: the table in copy.cpp.

#include <cstddef>
#include <cstdint>

#include "copy/copy_block.hpp"
#include "copy/stream_threshold.hpp"
#include "dace_redist_types.h"

namespace dace_redist {

/// Copies a block.
///
/// \param source, target  Starts of the two arrays, which do not overlap; any alignment. Nothing is done where every
///     element would be copied to itself.
/// \param stream  Use non-temporal stores where whole cache lines are written; see stream_threshold_bytes().
/// \param threads  Threads that share the copy if it is large enough.
DR_API void copy(const CopyBlock& block, const void* source, void* target, bool stream, int threads = 1);

/// Copies one block for several pairs of endpoints, such as the parts of a row that go to different arrays: source
/// lines that these share are read once.
///
/// \param block  The block; its offsets are ignored.
/// \param endpoints  [count] Starts of the copies; sources may overlap, targets do not.
/// \param count  1 to max_batch.
/// \param stream, threads  As for copy().
DR_API void copy_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream,
                       int threads = 1);

}  // namespace dace_redist
