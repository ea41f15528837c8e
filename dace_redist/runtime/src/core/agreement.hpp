// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Errors on one rank become errors on all of them.

#include <exception>
#include <string>

#include "core/mpi.hpp"
#include "dace_redist_types.h"

namespace dace_redist {

/// The lowest rank for which `holds` is true, on every rank; -1 if there is none. Collective.
DR_API int lowest_rank(MPI_Comm comm, bool holds);

/// Rank `root`'s text, on every rank. Collective.
std::string broadcast_text(MPI_Comm comm, std::string message, int root);

/// Throws on every rank: `thrown` where it is set, elsewhere an Error with its text on rank `failed`. Collective.
[[noreturn]] void throw_everywhere(MPI_Comm comm, const std::exception_ptr& thrown, int failed);

/// Throws on every rank if `thrown` is set on any: there itself; elsewhere an Error with the text of the lowest such
/// rank. Collective.
DR_API void throw_everywhere(MPI_Comm comm, const std::exception_ptr& thrown);

/// Throws an Error on every rank that names the first difference between two ranks. Collective, for ranks whose facts
/// differ.
/// \param facts  of this rank: lines of names, each followed by a line of values. A name that ends with "[" has a
///     number for each entry of a list.
[[noreturn]] void throw_difference(MPI_Comm comm, const std::string& facts);

/// Throws an Error on every rank, as above, if the facts of some ranks differ. Collective.
void check_same(MPI_Comm comm, const std::string& facts);

/// Runs `work` on every rank. Throws on every rank if it threw on any. Allocates nothing before. Collective; `work`
/// must not be.
template <class Work>
void all_or_none(MPI_Comm comm, const Work& work) {
  throw_everywhere(comm, caught(work));
}

}  // namespace dace_redist
