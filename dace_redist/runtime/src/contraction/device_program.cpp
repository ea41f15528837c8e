// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contraction/plan.hpp"
#include "contraction/resources.hpp"
#include "core/report.hpp"
#include "dace_redist_device_einsum.hpp"
#include "device/device_objects.hpp"
#include "trace/trace.hpp"

namespace dace_redist::program {
namespace {

/// One element of any type.
using ElementBytes = std::array<char, 16>;

template <class T>
ElementBytes bytes_of(T value) {
  ElementBytes bytes{};
  std::memcpy(&bytes, &value, sizeof value);
  return bytes;
}

struct ElementRow {
  const char* name;
  Index nbytes;
  ElementBytes one;
};

/// Indexed by DeviceElement.
const std::array<ElementRow, 4> device_elements{{{"float32", 4, bytes_of(1.0f)},
                                                 {"float64", 8, bytes_of(1.0)},
                                                 {"complex64", 8, bytes_of(std::complex<float>(1))},
                                                 {"complex128", 16, bytes_of(std::complex<double>(1))}}};
constexpr ElementBytes zero{};

DeviceElement find_device_element(const std::string& name) {
  for (std::size_t i = 0; i < device_elements.size(); ++i)
    if (name == device_elements[i].name) return static_cast<DeviceElement>(i);
  throw Error(text("a device contracts float32, float64, complex64 and complex128, not ", name));
}

/// A product with the kernels that copy its tensors.
struct DeviceStep {
  std::array<TensorPlace, 3> places;
  GemmPlan plan;
  BatchedGemm gemm;
  std::array<std::unique_ptr<CopyKernel>, 3> to_buffer;  // null: the tensor is used in place
  std::unique_ptr<CopyKernel> from_buffer;               // of the result
};

}  // namespace

class DeviceContraction::Implementation {
 public:
  Implementation(const char* label, const char* expression, const char* element_type, Path path) : label_(label) {
    reporting([&] {
      element_ = find_device_element(element_type);
      Einsum einsum(expression);
      path_ = complete_path(einsum, std::move(path));
      einsum_ = std::move(einsum);
    });
  }

  void run(std::initializer_list<Index> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta, MultiplyOnDevice multiply, void* library, Stream stream) {
    if (!einsum_) return;  // its error was reported
    reporting([&] {
      const trace::Span span("contract", label_.c_str(), {});
      Device& device = current_device();
      const CurrentDevice current(device);
      if (device_ != &device || !std::equal(layouts.begin(), layouts.end(), layouts_.begin(), layouts_.end()))
        prepare(device, layouts);
      operands_ = operands.begin();
      result_ = static_cast<char*>(result);
      if (is_empty_sum_) alpha = &zero;
      const bool has_beta = std::memcmp(beta, &zero, static_cast<std::size_t>(row().nbytes)) != 0;
      for (const DeviceStep& step : steps_) {
        const bool last = step.places[C].kind == TensorPlace::result;
        for (const Operand tensor : {A, B, C})
          if (step.to_buffer[tensor] && (tensor != C || (last && has_beta)))
            step.to_buffer[tensor]->launch({address(step.places[tensor])}, {buffer(step, tensor)}, stream);
        multiply(library, product(step, last ? alpha : &row().one, last ? beta : &zero), stream);
        if (step.from_buffer) step.from_buffer->launch({buffer(step, C)}, {address(step.places[C])}, stream);
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

  const ElementRow& row() const { return device_elements[static_cast<std::size_t>(element_)]; }

  void prepare(Device& device, const std::vector<Index>& layouts) {
    layouts_.clear();
    device_ = nullptr;
    steps_.clear();
    ContractionPlan plan = plan_contraction(read_layouts(*einsum_, layouts), path_, {row().nbytes, true, true, false});
    for (auto& step : plan.steps) add_step(device, std::get<PairStep>(std::move(step)));
    is_empty_sum_ = plan.is_empty_sum;
    scratch_at_ = plan.kept_count;
    ones_at_ = scratch_at_ + plan.scratch_count;
    memory_ = {};  // before its successor is allocated
    memory_ = DeviceBuffer(device, (ones_at_ + plan.ones_count) * row().nbytes);
    fill_ones(device, plan.ones_count);
    layouts_ = layouts;
    device_ = &device;
  }

  void add_step(Device& device, PairStep pair) {
    DeviceStep step{pair.places, std::get<GemmPlan>(std::move(pair.method)), {}, {}, {}};
    step.gemm = batched_gemm(step.plan);
    const TileWalk whole(step.plan.dimensions, step.plan.tiles);
    const auto kernel = [&](const StridedBlock& block) {
      return device.copy_kernel({DeviceCopy{block}}, {row().nbytes, row().nbytes, nullptr});
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

  void fill_ones(Device& device, Index count) {
    if (count == 0) return;
    const PinnedBuffer ones(device, count * row().nbytes);
    for (Index i = 0; i < count; ++i)
      std::memcpy(ones.at(i * row().nbytes), &row().one, static_cast<std::size_t>(row().nbytes));
    const OwnedStream stream = make_stream(device);
    device.copy(address({TensorPlace::ones, 0}), ones.at(0), count * row().nbytes, stream.get());
    device.synchronize(stream.get());
  }

  char* buffer(const DeviceStep& step, Operand tensor) const {
    return memory_.at((scratch_at_ + step.plan.buffer_at[tensor]) * row().nbytes);
  }

  char* address(const TensorPlace& place) const {
    if (place.kind == TensorPlace::operand)
      return const_cast<char*>(static_cast<const char*>(operands_[place.at]));  // steps only read it
    if (place.kind == TensorPlace::result) return result_;
    return memory_.at((place.kind == TensorPlace::kept ? place.at : ones_at_) * row().nbytes);
  }

  /// In column-major order: the transposed product c' = b' a'.
  DeviceProduct product(const DeviceStep& step, const void* alpha, const void* beta) const {
    const BatchedGemm& gemm = step.gemm;
    const auto data = [&](Operand tensor) {
      return step.plan.copied[tensor] ? buffer(step, tensor) : address(step.places[tensor]);
    };
    const auto matrix = [&](const BatchedGemm::Matrix& side) {
      return DeviceProduct::Matrix{data(side.tensor), side.transposed, side.leading, side.step};
    };
    return {element_,       gemm.n,  gemm.m,         gemm.k,      gemm.batches, matrix(gemm.b),
            matrix(gemm.a), data(C), gemm.c.leading, gemm.c.step, alpha,        beta};
  }

  std::string label_;
  DeviceElement element_ = DeviceElement::float64;
  std::optional<Einsum> einsum_;
  Path path_;
  std::vector<Index> layouts_;  // those of the plan
  Device* device_ = nullptr;    // that of the memory
  std::vector<DeviceStep> steps_;
  bool is_empty_sum_ = false;
  Index scratch_at_ = 0, ones_at_ = 0;     // elements
  DeviceBuffer memory_;                    // intermediates, scratch, ones
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
