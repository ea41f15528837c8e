// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Threads and memory of contractions: every rank is one of several on its node.

#include <algorithm>
#include <cstdlib>

#include "copy/buffer.hpp"
#include "core/cache_line.hpp"
#include "layout/intervals.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dace_redist {

/// Whether the environment chooses the number of threads of BLAS and OpenMP.
inline bool threads_are_chosen() {
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"})
    if (std::getenv(name)) return true;
  return false;
}

/// Threads for loops: those of OpenMP if the environment chose, else one.
inline int thread_count() {
#ifdef _OPENMP
  return threads_are_chosen() && !omp_in_parallel() ? omp_get_max_threads() : 1;
#else
  return 1;
#endif
}

/// Calls `work(thread)` for every thread in [0, threads).
template <class Work>
void on_threads([[maybe_unused]] int threads, const Work& work) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
#endif
  for (int thread = 0; thread < threads; ++thread) work(thread);
}

/// Elements of a buffer, rounded up so that the next buffer is aligned.
inline Index aligned_count(Index count, Index element_bytes) {
  const Index unit = std::max<Index>(1, cache_line_bytes / element_bytes);
  return ceil_div(count, unit) * unit;
}

/// A buffer that grows on demand and never shrinks.
class Workspace {
 public:
  /// At least this many bytes; former contents may be lost.
  char* reserve(Index nbytes) {
    if (nbytes > nbytes_) {
      nbytes_ = 0;
      memory_ = {};  // before its successor is allocated
      memory_ = Buffer(nbytes);
      nbytes_ = nbytes;
    }
    return memory_.at(0);
  }

 private:
  Buffer memory_;
  Index nbytes_ = 0;
};

}  // namespace dace_redist
