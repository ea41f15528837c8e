// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Ranks agree before they move anything: on what is to be done, and that it went well everywhere.

#include <functional>

#include "export.hpp"
#include "mpi/mpi.hpp"
#include "plan/description.hpp"

namespace dace_redist {

/// The lowest rank for which `holds` is true, on every rank; -1 if there is none. Collective.
DR_API int lowest_rank(MPI_Comm comm, bool holds);

/// Runs `work` on every rank. \throws Error on every rank if it threw on any: its own text where it failed, the text
/// of the lowest failing rank elsewhere. Collective; `work` must not be.
DR_API void all_or_none(MPI_Comm comm, const std::function<void()>& work);

/// \throws Error on every rank, naming the first difference, unless all ranks describe the same. Collective.
DR_API void check_agreement(MPI_Comm comm, const Encoding& encoding);

}  // namespace dace_redist
