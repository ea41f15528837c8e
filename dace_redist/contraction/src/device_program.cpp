// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dace_redist_einsum.hpp"
#include "dace_redist_library.hpp"
#include "plan.hpp"

namespace dace_redist::program {

using namespace contraction;

namespace {

constexpr std::array<char, 16> zero{};  // of any type

/// A product with the kernels that copy its tensors.
struct DeviceStep {
  std::array<TensorPlace, 3> places;
  GemmPlan plan;
  std::array<library::Handle, 3> to_buffer;  // copies; null: the tensor is used in place
  library::Handle from_buffer;               // of the result
};

}  // namespace

class DeviceContraction::Implementation {
 public:
  Implementation(const char* label, const char* expression, const char* element_type, Path path)
      : label_(label), title_("Contraction \"" + label_ + "\"") {
    library::reporting(title_, [&] {
      visit_inexact(element_type, "a device contracts float32, float64, complex64 and complex128, not ", [&](auto one) {
        constexpr bool is_complex = !std::is_floating_point_v<decltype(one)>;
        constexpr bool is_double = sizeof one == (is_complex ? 16 : 8);
        element_ = static_cast<DeviceElement>(2 * is_complex + is_double);
        nbytes_ = sizeof one;
        one += 1;
        std::memcpy(&one_, &one, sizeof one);
      });
      einsum_.emplace(expression, std::move(path), Executor{nbytes_, true, true, false});
    });
  }

  void run(std::initializer_list<Index> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta, MultiplyOnDevice multiply, void* cublas, void* stream) {
    if (!einsum_) return;  // its error was reported
    library::reporting(title_, [&] {
      const library::Span span("contract", label_.c_str());
      library::CurrentDevice device;
      if (einsum_->update(layouts.begin(), layouts.size()) || device_ != device.get()) prepare(device);
      operands_ = operands.begin();
      result_ = static_cast<char*>(result);
      if (einsum_->plan().is_empty_sum) alpha = &zero;
      const bool has_beta = std::memcmp(beta, &zero, static_cast<std::size_t>(nbytes_)) != 0;
      for (const DeviceStep& step : steps_) {
        const bool last = step.places[C].kind == TensorPlace::result;
        for (const Operand tensor : {A, B, C})
          if (step.to_buffer[tensor] && (tensor != C || (last && has_beta)))
            library::enqueue(step.to_buffer[tensor], address(step.places[tensor]), buffer(step, tensor), stream);
        multiply(cublas, product(step, last ? alpha : &one_, last ? beta : &zero), stream);
        if (step.from_buffer) library::enqueue(step.from_buffer, buffer(step, C), address(step.places[C]), stream);
      }
    });
  }

 private:
  void prepare(library::CurrentDevice& device) {
    device_ = nullptr;
    steps_.clear();
    const ContractionPlan& plan = einsum_->plan();
    for (const auto& step : plan.steps) steps_.push_back(prepared(device, std::get<PairStep>(step)));
    memory_ = {};  // before its successor is allocated
    memory_ = device.allocate((plan.kept_count + plan.scratch_count) * nbytes_);
    std::vector<char> ones(static_cast<std::size_t>(plan.ones_count * nbytes_));
    for (auto one = ones.begin(); one != ones.end(); one += nbytes_) std::copy_n(one_.begin(), nbytes_, one);
    ones_ = ones.empty() ? nullptr : device.upload(ones.data(), plan.ones_count * nbytes_);
    device_ = device.get();
  }

  DeviceStep prepared(library::CurrentDevice& device, const PairStep& pair) const {
    DeviceStep step{pair.places, std::get<GemmPlan>(pair.method), {}, {}};
    const TileWalk whole(step.plan.dimensions);
    for (const Operand tensor : {A, B, C}) {
      if (!step.plan.copied[tensor]) continue;
      library::Box box = step.plan.block(tensor, whole);
      step.to_buffer[tensor] = device.prepare(box, nbytes_);
      std::swap(box.source_strides, box.target_strides);
      if (tensor == C) step.from_buffer = device.prepare(box, nbytes_);
    }
    return step;
  }

  char* buffer(const DeviceStep& step, Operand tensor) const {
    return in_memory(einsum_->plan().kept_count + step.plan.buffer_at[tensor]);
  }

  char* in_memory(Index position) const { return static_cast<char*>(memory_.get()) + position * nbytes_; }

  char* address(const TensorPlace& place) const {
    if (place.kind == TensorPlace::operand)
      return const_cast<char*>(static_cast<const char*>(operands_[place.at]));  // steps only read it
    if (place.kind == TensorPlace::result) return result_;
    return place.kind == TensorPlace::kept ? in_memory(place.at) : static_cast<char*>(ones_.get());
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
    return {element_, m,     n,   plan.size(Sums), plan.size(Around), a, b, const_cast<void*>(c.data), c.leading,
            c.step,   alpha, beta};
  }

  std::string label_, title_;
  DeviceElement element_ = DeviceElement::float64;
  Index nbytes_ = 0;  // of an element
  std::array<char, 16> one_{};
  std::optional<PlannedEinsum> einsum_;
  const Device* device_ = nullptr;  // that of the memory
  std::vector<DeviceStep> steps_;
  library::Handle memory_;                 // intermediates, then the buffers of a step
  library::Handle ones_;                   // constants
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
