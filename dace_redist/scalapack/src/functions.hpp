// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Functions of the ScaLAPACK and BLACS that the program uses. They are looked up, not linked: a library that is loaded
/// into every process must not bring a ScaLAPACK of its own.

#include <atomic>

namespace dace_redist::scalapack {

/// A function of this name among the libraries that the program is linked with, behind this one; null: none.
void* find_linked_function(const char* name);

/// The same, also where Python has loaded it for one module only.
void* find_function(const char* name);

/// Ends the process, with a message that names the function.
[[noreturn]] void function_missing(const char* name);

/// A function that is looked up as this library is loaded, or, if that was too early, at its first use.
template <class Signature>
class Function {
 public:
  explicit Function(const char* name) : name_(name), address_(find_linked_function(name)) {}

  /// \return null: there is none.
  Signature* find() const {
    if (!address_) address_ = find_function(name_);
    return reinterpret_cast<Signature*>(address_.load(std::memory_order_relaxed));
  }
  /// Ends the process if there is none.
  Signature* get() const {
    Signature* const found = find();
    if (!found) function_missing(name_);
    return found;
  }

 private:
  const char* name_;
  mutable std::atomic<void*> address_;
};

}  // namespace dace_redist::scalapack
