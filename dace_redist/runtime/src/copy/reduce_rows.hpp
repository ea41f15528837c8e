// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Reductions of several rows to one.

#include "copy/element_operation.hpp"
#include "core/element_type.hpp"

namespace dace_redist {

/// The function that reduces rows of a type; null without a reduction, of booleans, and where numbers have no order.
ElementKernel::RowReduction row_reduction(ElementType type, Reduction reduction);

}  // namespace dace_redist
