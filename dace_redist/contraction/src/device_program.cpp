// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan.hpp"
#include "core/report.hpp"
#include "dace_redist_device_einsum.hpp"
#include "device/device_objects.hpp"
#include "trace/trace.hpp"

namespace dace_redist::program {
namespace {

/// One element of any type.
using ElementBytes = std::array<char, 16>;
constexpr ElementBytes zero{};

/// Types of the elements of a device follow each other in both enumerations.
constexpr auto first_element = static_cast<std::int64_t>(ElementType::float32);
static_assert(first_element + static_cast<std::int64_t>(DeviceElement::complex128) ==
              static_cast<std::int64_t>(ElementType::complex128));

ElementType find_device_element(const char* name) {
  const ElementType type = find_element_type(name);
  if (element_info(type).kind < ElementKind::real)
    throw Error(text("a device contracts float32, float64, complex64 and complex128, not ", name));
  return type;
}

ElementBytes one_of(ElementType element) {
  ElementBytes bytes{};
  visit_element_type(element, [&](auto element_zero) {
    const decltype(element_zero) one(1);
    std::memcpy(&bytes, &one, sizeof one);
  });
  return bytes;
}

/// A product with the kernels that copy its tensors.
struct DeviceStep {
  std::array<TensorPlace, 3> places;
  GemmPlan plan;
  std::array<std::unique_ptr<CopyKernel>, 3> to_buffer;  // null: the tensor is used in place
  std::unique_ptr<CopyKernel> from_buffer;               // of the result
};

}  // namespace

class DeviceContraction::Implementation {
 public:
  Implementation(const char* label, const char* expression, const char* element_type, Path path)
      : label_(label), title_(text("Contraction \"", label, "\"")) {
    reporting(title_, [&] {
      element_ = find_device_element(element_type);
      nbytes_ = element_info(element_).nbytes;
      one_ = one_of(element_);
      einsum_.emplace(expression, std::move(path), Executor{nbytes_, true, true, false});
    });
  }

  void run(std::initializer_list<Index> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta, MultiplyOnDevice multiply, void* library, Stream stream) {
    if (!einsum_) return;  // its error was reported
    reporting(title_, [&] {
      const trace::Span span("contract", label_.c_str(), {});
      Device& device = current_device();
      const CurrentDevice current(device);
      if (einsum_->update(layouts.begin(), layouts.size()) || device_ != &device) prepare(device);
      operands_ = operands.begin();
      result_ = static_cast<char*>(result);
      if (einsum_->plan().is_empty_sum) alpha = &zero;
      const bool has_beta = std::memcmp(beta, &zero, static_cast<std::size_t>(nbytes_)) != 0;
      for (const DeviceStep& step : steps_) {
        const bool last = step.places[C].kind == TensorPlace::result;
        for (const Operand tensor : {A, B, C})
          if (step.to_buffer[tensor] && (tensor != C || (last && has_beta)))
            step.to_buffer[tensor]->launch({address(step.places[tensor])}, {buffer(step, tensor)}, stream);
        multiply(library, product(step, last ? alpha : &one_, last ? beta : &zero), stream);
        if (step.from_buffer) step.from_buffer->launch({buffer(step, C)}, {address(step.places[C])}, stream);
      }
    });
  }

 private:
  void prepare(Device& device) {
    device_ = nullptr;
    steps_.clear();
    const ContractionPlan& plan = einsum_->plan();
    for (const auto& step : plan.steps) add_step(device, std::get<PairStep>(step));
    memory_ = {};  // before its successor is allocated
    memory_ = DeviceBuffer(device, (plan.kept_count + plan.scratch_count) * nbytes_);
    std::vector<char> ones(static_cast<std::size_t>(plan.ones_count * nbytes_));
    for (auto one = ones.begin(); one != ones.end(); one += nbytes_) std::copy_n(one_.begin(), nbytes_, one);
    ones_ = ones.empty() ? nullptr : device.upload(ones.data(), plan.ones_count * nbytes_);
    device_ = &device;
  }

  void add_step(Device& device, const PairStep& pair) {
    DeviceStep step{pair.places, std::get<GemmPlan>(pair.method), {}, {}};
    const TileWalk whole(step.plan.dimensions);
    const auto kernel = [&](const StridedBlock& block) {
      return std::make_unique<CopyKernel>(device, std::vector<DeviceCopy>{{block}},
                                          ElementStep{nbytes_, nbytes_, nullptr});
    };
    for (const Operand tensor : {A, B, C}) {
      if (!step.plan.copied[tensor]) continue;
      StridedBlock block = step.plan.block(tensor, whole);
      step.to_buffer[tensor] = kernel(block);
      std::swap(block.source_strides, block.target_strides);
      if (tensor == C) step.from_buffer = kernel(block);
    }
    steps_.push_back(std::move(step));
  }

  char* buffer(const DeviceStep& step, Operand tensor) const {
    return memory_.at((einsum_->plan().kept_count + step.plan.buffer_at[tensor]) * nbytes_);
  }

  char* address(const TensorPlace& place) const {
    if (place.kind == TensorPlace::operand)
      return const_cast<char*>(static_cast<const char*>(operands_[place.at]));  // steps only read it
    if (place.kind == TensorPlace::result) return result_;
    return place.kind == TensorPlace::kept ? memory_.at(place.at * nbytes_) : static_cast<char*>(ones_.get());
  }

  /// In column-major order: the transposed product c' = b' a', unless c itself lies transposed.
  DeviceProduct product(const DeviceStep& step, const void* alpha, const void* beta) const {
    const GemmPlan& plan = step.plan;
    const TileWalk whole(plan.dimensions);
    const auto matrix = [&](Operand tensor) {
      const Index rows = plan.size(sides_of[tensor][0]), columns = plan.size(sides_of[tensor][1]);
      const auto [row_stride, column_stride] = plan.strides(tensor, whole);
      const MatrixLayout layout = matrix_layout(rows, columns, row_stride, column_stride);
      const bool in_batch = plan.size(tensor) > rows * columns;
      char* const data = plan.copied[tensor] ? buffer(step, tensor) : address(step.places[tensor]);
      const Index distance = !plan.copied[tensor] ? plan.stride(tensor, Around) : in_batch ? rows * columns : 0;
      return DeviceProduct::Matrix{data, layout.transposed, layout.leading, distance};
    };
    DeviceProduct::Matrix a = matrix(A), b = matrix(B);
    const DeviceProduct::Matrix c = matrix(C);
    Index m = plan.size(Rows), n = plan.size(Columns);
    if (c.transposed) {
      for (DeviceProduct::Matrix* side : {&a, &b}) side->transposed = !side->transposed;
    } else {
      std::swap(m, n);
      std::swap(a, b);
    }
    const auto element = static_cast<DeviceElement>(static_cast<std::int64_t>(element_) - first_element);
    return {element, m,     n,   plan.size(Sums), plan.size(Around), a, b, const_cast<void*>(c.data), c.leading,
            c.step,  alpha, beta};
  }

  std::string label_, title_;
  ElementType element_ = ElementType::float64;
  Index nbytes_ = 0;  // of an element
  ElementBytes one_{};
  std::optional<PlannedEinsum> einsum_;
  Device* device_ = nullptr;  // that of the memory
  std::vector<DeviceStep> steps_;
  DeviceBuffer memory_;                    // intermediates, then the buffers of a step
  DeviceHandle ones_;                      // constants
  const void* const* operands_ = nullptr;  // of the run at hand
  char* result_ = nullptr;
};

DeviceContraction::DeviceContraction(const char* label, const char* expression, const char* element_type,
                                     std::initializer_list<std::initializer_list<std::size_t>> path)
    : implementation_(
          std::make_unique<Implementation>(label, expression, element_type, Path(path.begin(), path.end()))) {}
DeviceContraction::~DeviceContraction() = default;
void DeviceContraction::run(std::initializer_list<std::int64_t> layouts, std::initializer_list<const void*> operands,
                            void* result, const void* alpha, const void* beta, MultiplyOnDevice multiply, void* library,
                            void* stream) {
  implementation_->run(layouts, operands, result, alpha, beta, multiply, library, stream);
}

}  // namespace dace_redist::program
