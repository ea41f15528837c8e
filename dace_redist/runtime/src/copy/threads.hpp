// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Copies shared by the threads of a rank.

#include "copy/run_list.hpp"
#include "core/export.hpp"

namespace dace_redist {

/// Threads of OpenMP, at most the cores of this node for each of its ranks: threads that share a core wait for each
/// other. One if compiled without OpenMP.
DR_API int threads_of_rank(std::int64_t ranks);

/// As copy(), by `threads` threads if the block is large enough.
DR_API void copy(const CopyBlock& block, const void* source, void* target, bool stream, int threads);

/// As copy_batch(), by `threads` threads if the copies are large enough.
DR_API void copy_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream,
                       int threads);

/// Runs all copies of a list by `threads` threads: these share large blocks, which are streamed from
/// stream_threshold_bytes() on, and take small ones in turn.
DR_API void copy_threaded(const CopyList& copies, const char* source, char* target, int threads);

}  // namespace dace_redist
