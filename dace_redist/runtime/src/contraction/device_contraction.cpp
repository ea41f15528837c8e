// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contraction/batched_gemm_plan.hpp"
#include "dace_redist_device_einsum.hpp"
#include "device/device_objects.hpp"
#include "core/report.hpp"
#include "trace/trace.hpp"

namespace dace_redist::program {
namespace {

constexpr const char* device_element_names[] = {"float32", "float64", "complex64", "complex128"};
constexpr Index device_element_bytes[] = {4, 8, 8, 16};

/// One element of any type.
using ElementBytes = std::array<char, 16>;

template <class T>
ElementBytes bytes_of(T value) {
  ElementBytes bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

ElementBytes one_of(DeviceElement element) {
  switch (element) {
    case DeviceElement::float32:
      return bytes_of(1.0f);
    case DeviceElement::float64:
      return bytes_of(1.0);
    case DeviceElement::complex64:
      return bytes_of(std::complex<float>(1));
    case DeviceElement::complex128:
      break;
  }
  return bytes_of(std::complex<double>(1));
}

DeviceElement device_element(const std::string& name) {
  for (std::size_t i = 0; i < std::size(device_element_names); ++i)
    if (name == device_element_names[i]) return static_cast<DeviceElement>(i);
  throw Error(text("a device contracts float32, float64, complex64 and complex128, not ", name));
}

}  // namespace

class DeviceContraction::Implementation {
 public:
  Implementation(const char* label, const char* expression, const char* element_type, Path path) : label_(label) {
    reporting([&] {
      element_ = device_element(element_type);
      one_ = one_of(element_);
      element_bytes_ = device_element_bytes[static_cast<std::size_t>(element_)];
      einsum_ = std::make_unique<Einsum>(expression);
      path_ = complete_path(expression, *einsum_, std::move(path));
      expression_ = expression;
    });
  }

  void run(std::initializer_list<Index> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta, MultiplyOnDevice multiply, void* library, Stream stream) {
    if (expression_.empty()) return;  // its error was reported
    reporting([&] {
      const trace::Span span("contract", label_.c_str(), {});
      Device& device = current_device();
      const CurrentDevice current(device);
      if (device_ != &device || !std::equal(layouts.begin(), layouts.end(), layouts_.begin(), layouts_.end()))
        prepare(device, layouts);
      operands_ = operands.begin();
      result_ = static_cast<char*>(result);
      const ElementBytes zero{};
      const bool has_beta = std::memcmp(beta, zero.data(), static_cast<std::size_t>(element_bytes_)) != 0;
      auto kernel = kernels_.begin();
      for (const auto& step : plan_.steps) {
        if (const auto* copy = std::get_if<BlockCopy>(&step)) {
          if (has_beta || !copy->only_with_beta)
            (*kernel)->launch({address(copy->source)}, {address(copy->target)}, stream);
          ++kernel;
        } else {
          multiply(library, product(std::get<BatchedGemm>(step), alpha, beta), stream);
        }
      }
    });
  }

 private:
  template <class Work>
  void reporting(const Work& work) const {
    try {
      work();
    } catch (const std::exception& error) {
      report(text("Contraction \"", label_, "\": ", error.what()));
    }
  }

  void prepare(Device& device, const std::vector<Index>& layouts) {
    layouts_.clear();
    device_ = nullptr;
    plan_ = plan_batched_gemms(read_layouts(expression_, *einsum_, layouts), path_);
    kernels_.clear();
    for (const auto& step : plan_.steps)
      if (const auto* copy = std::get_if<BlockCopy>(&step))
        kernels_.push_back(device.copy_kernel({DeviceCopy{copy->block}}, {element_bytes_, element_bytes_, nullptr}));
    memory_ = {};  // before its successor is allocated
    const Index count = plan_.kept_count + plan_.scratch_count + plan_.ones_count + plan_.zeros_count;
    memory_ = DeviceBuffer(device, count * element_bytes_);
    fill_constants(device);
    layouts_ = layouts;
    device_ = &device;
  }

  void fill_constants(Device& device) {
    const Index count = plan_.ones_count + plan_.zeros_count;
    if (count == 0) return;
    const PinnedBuffer constants(device, count * element_bytes_);
    std::memset(constants.at(0), 0, static_cast<std::size_t>(count * element_bytes_));
    for (Index i = 0; i < plan_.ones_count; ++i)
      std::memcpy(constants.at(i * element_bytes_), one_.data(), static_cast<std::size_t>(element_bytes_));
    const OwnedStream stream = make_stream(device);
    device.copy(address({TensorPlace::ones, 0}), constants.at(0), count * element_bytes_, stream.get());
    device.synchronize(stream.get());
  }

  char* address(const TensorPlace& place) const {
    switch (place.kind) {
      case TensorPlace::operand:
        return const_cast<char*>(static_cast<const char*>(operands_[place.at]));  // steps only read it
      case TensorPlace::result:
        return result_;
      case TensorPlace::kept:
        return memory_.at(place.at * element_bytes_);
      case TensorPlace::scratch:
        return memory_.at((plan_.kept_count + place.at) * element_bytes_);
      case TensorPlace::ones:
        return memory_.at((plan_.kept_count + plan_.scratch_count) * element_bytes_);
      case TensorPlace::zeros:
        break;
    }
    return memory_.at((plan_.kept_count + plan_.scratch_count + plan_.ones_count) * element_bytes_);
  }

  DeviceProduct product(const BatchedGemm& step, const void* alpha, const void* beta) const {
    static const ElementBytes zero{};
    const auto matrix = [this](const BatchedMatrix& side) {
      return DeviceProduct::Matrix{address(side.place), side.transposed, side.leading, side.step};
    };
    if (step.is_empty) alpha = zero.data();
    return {element_,
            step.m,
            step.n,
            step.k,
            step.batches,
            matrix(step.a),
            matrix(step.b),
            address(step.c.place),
            step.c.leading,
            step.c.step,
            step.has_alpha ? alpha : one_.data(),
            step.has_beta ? beta : zero.data()};
  }

  std::string label_, expression_;
  DeviceElement element_ = DeviceElement::float64;
  Index element_bytes_ = 8;
  std::unique_ptr<Einsum> einsum_;
  Path path_;
  std::vector<Index> layouts_;  // those of the plan
  Device* device_ = nullptr;    // that of the memory
  BatchedGemmPlan plan_;
  std::vector<std::unique_ptr<CopyKernel>> kernels_;  // of the plan's copies, in their order
  DeviceBuffer memory_;                               // kept, scratch, ones, zeros
  const void* const* operands_ = nullptr;             // of the run at hand
  char* result_ = nullptr;
  ElementBytes one_{};
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
