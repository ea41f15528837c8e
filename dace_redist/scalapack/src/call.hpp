// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A call of a routine, and how this library carries it out. Start reading at: carry_out.

#include <atomic>
#include <complex>
#include <cstdint>

#include "side.hpp"

namespace dace_redist::scalapack {

struct Routine {
  const char* name;
  std::int64_t element_bytes;
  int type = DR_OPAQUE;  ///< of elements that are computed with
  bool transposes = false, conjugates = false;
};

/// target = alpha * source + beta * target, of submatrices; the target has m rows and n columns.
struct Call {
  const Routine& routine;
  int m, n;
  Submatrix source, target;
  int context;  ///< of all processes that call
  std::complex<double> alpha{1}, beta{0};

  std::int64_t nbytes() const { return std::int64_t{m} * n * routine.element_bytes; }
};

/// Calls of this process; printed at its end if DACE_REDIST_SCALAPACK_REPORT is set. They lie in one line of memory,
/// the only one that a small call looks at: it may take no longer than without the library.
struct alignas(64) Calls {
  Calls();
  ~Calls();
  std::int64_t min_bytes;  ///< of a call that is not small
  std::atomic<std::int64_t> all{0}, carried_out{0};
  std::atomic<bool> has_large{false};  ///< a thread is in a call that is not small
};
extern Calls calls;

[[noreturn]] void stop(const Routine& routine, const char* message);

/// Carries out a call that is not small. Collective over its context: \return the same on all processes of the context.
/// \return false if it is left to ScaLAPACK: what the library cannot do, or would do slower.
bool carried_out(const Call& call);

/// Carries out a call, or has `leave` call ScaLAPACK, and counts it. Two calls that are not small at once end the
/// program: BLACS is not thread-safe, and processes that take the calls in different orders wait forever.
template <class Leave>
void carry_out(const Call& call, const Leave& leave) {
  ++calls.all;
  if (call.nbytes() < calls.min_bytes) return leave();
  if (calls.has_large.exchange(true))
    stop(call.routine,
         "another thread of this process is in a routine of ScaLAPACK; call them from one thread at a time");
  if (carried_out(call))
    ++calls.carried_out;
  else
    leave();
  calls.has_large = false;
}

}  // namespace dace_redist::scalapack
