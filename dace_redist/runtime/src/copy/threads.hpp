// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Lists of copies shared by the threads of a rank.

#include "copy/run_list.hpp"
#include "core/export.hpp"

namespace dace_redist {

/// Threads of OpenMP, at most the cores of this node for each of its ranks: threads that share a core wait for each
/// other. One if compiled without OpenMP.
DR_API int threads_of_rank(std::int64_t ranks);

/// Runs all copies of a list by `threads` threads: these share large blocks, which are streamed from
/// stream_threshold_bytes() on, and take small ones in turn.
DR_API void copy_threaded(const CopyList& copies, const char* source, char* target, int threads);

}  // namespace dace_redist
