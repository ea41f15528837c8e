// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The steps of an element from the source array to the target array, and the computation in each.
/// Start reading at: ElementSteps.

#include <cstdint>

#include "copy/element_operation.hpp"

namespace dace_redist {

/// One step: between an array and a message, or between two arrays.
struct ElementStep {
  std::int64_t source_bytes = 1, target_bytes = 1;  ///< of an element
  const ElementKernel* kernel = nullptr;            ///< null: elements are copied
};

/// The steps of all elements of a plan. A message holds elements of the smaller of the two types. Scaling and updates
/// of the target follow the conversion, so that the value of an element does not depend on its path.
class ElementSteps {
 public:
  ElementSteps() = default;
  ElementSteps(const ElementSteps&) = delete;
  ElementSteps& operator=(const ElementSteps&) = delete;

  /// \throws Error if the operation cannot be carried out with these types.
  void set(const ElementOperation& operation, std::int64_t source_bytes);

  const ElementStep& direct() const { return direct_; }  ///< from array to array
  const ElementStep& pack() const { return pack_; }      ///< from the source array to a message
  const ElementStep& unpack() const { return unpack_; }  ///< from a message to the target array
  /// Bytes of an element in a message.
  std::int64_t message_bytes() const { return pack_.target_bytes; }

 private:
  static const ElementKernel* kernel(ElementKernel& made, const ElementOperation& operation);

  ElementKernel pack_kernel_, unpack_kernel_, direct_kernel_;
  ElementStep direct_, pack_, unpack_;
};

}  // namespace dace_redist
