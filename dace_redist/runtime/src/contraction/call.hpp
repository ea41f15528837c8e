// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What a generated program calls.

#include "contraction/contraction.hpp"
#include "plan/report.hpp"

namespace dace_redist {

/// Contraction::run(), with an error handed to the caller of the program.
///
/// :param label: Names the node in the error.
template <class T>
void contract(const char* label, Contraction<T>& contraction, Values<Index> layouts, Values<const T*> operands,
              T* result, T alpha, T beta) {
  try {
    contraction.run(layouts, operands, result, alpha, beta);
  } catch (const std::exception& error) {
    report(text("Contraction \"", label, "\": ", error.what()));
  }
}

}  // namespace dace_redist
