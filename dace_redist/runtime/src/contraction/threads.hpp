// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How many threads a contraction uses: every rank is one of several on its node.

#include <cstdlib>
#include <initializer_list>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dace_redist {

/// Whether the environment says how many threads BLAS and OpenMP have.
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

}  // namespace dace_redist
