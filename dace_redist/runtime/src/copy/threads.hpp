// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Copies shared by the threads of a rank.

#include "copy/run_list.hpp"
#include "core/export.hpp"

namespace dace_redist {

/// Threads to use for an option `threads`: as many as OpenMP has for 0, one if compiled without OpenMP.
DR_API int thread_count(std::int64_t option);

namespace detail {
DR_API void run_parts(int parts, void (*run)(const void* work, int part), const void* work);
}

/// Calls `work(part)` for every part in [0, parts), each on a thread of its own; a single part on the calling thread.
/// `work` must not throw.
/// \throws Error for several parts if compiled without OpenMP.
template <class Work>
void parallel_for(int parts, const Work& work) {
  if (parts == 1) return work(0);
  detail::run_parts(
      parts, [](const void* any, int part) { (*static_cast<const Work*>(any))(part); }, &work);
}

/// As copy(), by `threads` threads if the block is large enough.
DR_API void copy(const CopyBlock& block, const void* source, void* target, bool stream, int threads);

/// As CopyList::copy(), by `threads` threads: these share large blocks and take small ones in turn.
DR_API void copy_threaded(const CopyList& copies, const char* source, char* target, int threads);

}  // namespace dace_redist
