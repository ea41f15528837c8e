// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The element types with which a device computes.

#include "copy/element_steps.hpp"

namespace dace_redist {

/// Whether a device has a kernel for elements of these types: equal types, and the two precisions of real and of
/// complex numbers.
inline bool device_computes(ElementType source, ElementType target) {
  const ElementKind from = element_info(source).kind, to = element_info(target).kind;
  return from != ElementKind::opaque && (source == target || (from == to && from >= ElementKind::real));
}

/// \throws Error if the step needs a conversion for which a device has no kernel.
inline void check_device_step(const ElementStep& step) {
  if (step.kernel == nullptr) return;
  const ElementOperation& operation = step.kernel->operation();
  if (device_computes(operation.source, operation.target)) return;
  throw Error(text("elements cannot be converted from ", element_name(operation.source), " to ",
                   element_name(operation.target),
                   " on a GPU, only between float32 and float64, and between complex64 and complex128; convert the ",
                   "array on the GPU before the redistribution, or its result afterwards"));
}

}  // namespace dace_redist
