// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What executes a plan: properties of a processor that determine the steps, its threads and memory. Every rank is one
/// of several on its node.

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <type_traits>

#include "base.hpp"
#include "dace_redist_library.hpp"

namespace dace_redist::contraction {

inline constexpr Index max_panel_vectors = 9;  ///< with more columns BLAS is as good

/// A processor and its routines for the elements of a type.
struct Executor {
  Index element_nbytes;
  bool batches;      ///< GPU: products of batches of matrices only; CPU: reads constants with strides of 0
  bool has_blas;     ///< multiplies matrices
  bool has_vectors;  ///< real numbers and integers: has a kernel for panels of few columns

  /// Whether multiply_by_panel() has a kernel of its own for these columns, instead of BLAS.
  constexpr bool has_panel_kernel(Index columns) const {
    return has_vectors && (!has_blas || columns <= max_panel_vectors * (vector_bytes / element_nbytes));
  }

  /// Columns of a panel with this many in use: whole vectors, the rest of which is zero.
  constexpr Index panel_columns(Index used) const {
    const Index lanes = vector_bytes / element_nbytes;
    return ceil_div(used, lanes) * lanes;
  }
};

/// The CPU, for elements of type T.
template <class T>
inline constexpr Executor executor_of{sizeof(T), false, !std::is_integral_v<T>, std::is_arithmetic_v<T>};

/// Whether the environment chooses the number of threads of BLAS and OpenMP.
inline bool threads_are_chosen() {
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"})
    if (std::getenv(name)) return true;
  return false;
}

/// Threads for loops: those of OpenMP if the environment chose, else one.
inline int thread_count() {
#ifdef _OPENMP
  if (threads_are_chosen() && !omp_in_parallel()) return omp_get_max_threads();
#endif
  return 1;
}

/// Calls `work(thread)` on each of some threads; on one thread directly. \throws what one of them throws.
template <class Work>
void parallel_for(int threads, const Work& work) {
  if (threads == 1) return work(0);
#ifdef _OPENMP
  std::exception_ptr thrown;  // what leaves a team of threads ends the process
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int thread = 0; thread < threads; ++thread) {
    try {
      work(thread);
    } catch (...) {
#pragma omp critical
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
#endif
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
      memory_ = library::allocate(nbytes);
      nbytes_ = nbytes;
    }
    return static_cast<char*>(memory_.get());
  }

 private:
  library::Handle memory_;
  Index nbytes_ = 0;
};

}  // namespace dace_redist::contraction
