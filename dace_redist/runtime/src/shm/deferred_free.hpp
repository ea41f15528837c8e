// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory of the arena that partners may still use when this process is done with it.

#include <functional>

namespace dace_redist {

/// Frees memory of this process's arena as soon as `unused()` is true: now, or in a later call of this function or of
/// sweep_deferred().
void free_when(void* memory, std::function<bool()> unused);

/// Frees deferred memory that is unused by now.
void sweep_deferred();

}  // namespace dace_redist
