// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Functions of the ScaLAPACK and BLACS that the program uses. They are looked up, not linked: a library that is loaded
/// into every process must not bring a ScaLAPACK of its own.

namespace dace_redist::scalapack {

/// A function of this name outside of this library, also where Python has loaded it for one module only; null: none.
void* find_function(const char* name);

/// Ends the process, with a message that names the function.
[[noreturn]] void function_missing(const char* name);

/// \return the function. Ends the process if there is none.
template <class Function>
Function* function(const char* name) {
  void* const found = find_function(name);
  if (!found) function_missing(name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace dace_redist::scalapack
