// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A call of a routine, and how this library carries it out. Start reading at: carried_out.

#include <complex>
#include <cstdint>

#include "scalapack/side.hpp"

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
  const char *uplo = nullptr, *diag = nullptr;  ///< of a triangle; null: the whole submatrix
};

/// Carries out a call. Collective over its context: \return the same on all processes of the context.
/// \return false if it is left to ScaLAPACK: what the library cannot do, or would do slower.
bool carried_out(const Call& call);

}  // namespace dace_redist::scalapack
