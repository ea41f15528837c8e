// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A loop whose parts run on threads of their own.

#include "core/error.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dace_redist {

/// Calls `work(part)` for every part in [0, parts), each on a thread of its own; a single part on the calling thread.
/// \throws what `work` throws, for some part; Error for several parts if compiled without OpenMP.
template <class Work>
void parallel_for(int parts, const Work& work) {
  if (parts == 1) return work(0);  // a team of one thread costs OpenMP more than a short copy takes
#ifdef _OPENMP
  std::exception_ptr thrown;  // what leaves a team of threads ends the process
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part)
    if (const std::exception_ptr one = caught([&] { work(part); })) {
#pragma omp critical
      thrown = one;
    }
  if (thrown) std::rethrow_exception(thrown);
#else
  throw Error(text("threads is ", parts, ", but the library was compiled without OpenMP: use threads=1"));
#endif
}

}  // namespace dace_redist
