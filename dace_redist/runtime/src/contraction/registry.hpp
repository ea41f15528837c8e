// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Contractions by the name of their element type. The source file of a type registers it.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contraction/contraction.hpp"

namespace dace_redist {

/// A Contraction of any element type.
class AnyContraction {
 public:
  virtual ~AnyContraction() = default;
  /// See Contraction::run(); the factors are of the element type.
  virtual void run(Values<Index> layouts, Values<const void*> operands, void* result, const void* alpha,
                   const void* beta) = 0;
};

using MakeContraction = std::unique_ptr<AnyContraction> (*)(const std::string& expression, Path path);

/// Makes contractions of an element type known under its name.
__attribute__((visibility("default"))) void register_contraction(const std::string& element_type, MakeContraction make);

/// \throws Error if nothing is registered for the element type.
MakeContraction find_contraction(const std::string& element_type);

/// A Contraction<T> behind the common interface.
template <class T>
class TypedContraction final : public AnyContraction {
 public:
  TypedContraction(const std::string& expression, Path path) : contraction_(expression, std::move(path)) {}

  void run(Values<Index> layouts, Values<const void*> operands, void* result, const void* alpha,
           const void* beta) override {
    typed_.clear();
    for (std::size_t i = 0; i < operands.count; ++i) typed_.push_back(static_cast<const T*>(operands[i]));
    contraction_.run(layouts, {typed_.data(), typed_.size()}, static_cast<T*>(result), *static_cast<const T*>(alpha),
                     *static_cast<const T*>(beta));
  }

  static std::unique_ptr<AnyContraction> make(const std::string& expression, Path path) {
    return std::make_unique<TypedContraction>(expression, std::move(path));
  }

 private:
  Contraction<T> contraction_;
  std::vector<const T*> typed_;
};

/// A static object of this type in a source file registers a type when the library is loaded.
template <class T>
struct RegisteredContraction {
  RegisteredContraction(const char* element_type) { register_contraction(element_type, TypedContraction<T>::make); }
};

}  // namespace dace_redist
