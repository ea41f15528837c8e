// SPDX-License-Identifier: BSD-3-Clause
#include "copy/element_steps.hpp"

#include <algorithm>

namespace dace_redist {

void ElementSteps::set(const ElementOperation& operation, std::int64_t source_bytes) {
  direct_ = pack_ = unpack_ = {source_bytes, source_bytes, nullptr};
  if (operation.is_copy()) return;
  const std::int64_t target_bytes = element_bytes_of(operation.target);
  if (source_bytes != element_bytes_of(operation.source))
    throw Error(text("elements of type ", element_name(operation.source), " have ", element_bytes_of(operation.source),
                     " bytes, not ", source_bytes));
  const bool source_travels = source_bytes < target_bytes;
  ElementOperation conversion, rest = operation;
  conversion.source = operation.source;
  conversion.target = source_travels ? operation.source : operation.target;
  rest.source = conversion.target;
  const std::int64_t message_bytes = std::min(source_bytes, target_bytes);
  pack_ = {source_bytes, message_bytes, kernel(pack_kernel_, conversion)};
  unpack_ = {message_bytes, target_bytes, kernel(unpack_kernel_, rest)};
  direct_ = {source_bytes, target_bytes, kernel(direct_kernel_, operation)};
}

const ElementKernel* ElementSteps::kernel(ElementKernel& made, const ElementOperation& operation) {
  if (operation.is_copy()) return nullptr;
  made = ElementKernel(operation);
  return &made;
}

}  // namespace dace_redist
