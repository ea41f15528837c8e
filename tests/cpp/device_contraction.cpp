// Contractions of arrays in the memory of a device behind a C interface, for tests that choose them at run time.
// Products of matrices are plain loops here.
#include <complex>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dace_redist_einsum.hpp"
#include "device/device.hpp"

namespace {

using namespace dace_redist;
using program::DeviceElement;
using program::DeviceProduct;
using Index = std::int64_t;

constexpr std::initializer_list<std::initializer_list<std::size_t>> no_path{};

template <class T>
void multiply_elements(const DeviceProduct& product) {
  const auto offset = [](const DeviceProduct::Matrix& matrix, Index batch, Index row, Index column) {
    return batch * matrix.step + (matrix.transposed ? row * matrix.leading + column : column * matrix.leading + row);
  };
  T alpha, beta;
  std::memcpy(&alpha, product.alpha, sizeof alpha);
  std::memcpy(&beta, product.beta, sizeof beta);
  const T *const a = static_cast<const T*>(product.a.data), *const b = static_cast<const T*>(product.b.data);
  for (Index batch = 0; batch < product.batches; ++batch)
    for (Index i = 0; i < product.m; ++i)
      for (Index j = 0; j < product.n; ++j) {
        T sum{};
        for (Index l = 0; l < product.k; ++l)
          sum += a[offset(product.a, batch, i, l)] * b[offset(product.b, batch, l, j)];
        T& target = static_cast<T*>(product.c)[batch * product.c_step + j * product.c_leading + i];
        target = alpha * sum + (beta == T{} ? T{} : beta * target);
      }
}

/// A MultiplyOnDevice. \param library  the device.
void multiply(void* library, const DeviceProduct& product, void* stream) {
  static_cast<Device*>(library)->synchronize(stream);
  switch (product.element) {
    case DeviceElement::float32:
      return multiply_elements<float>(product);
    case DeviceElement::float64:
      return multiply_elements<double>(product);
    case DeviceElement::complex64:
      return multiply_elements<std::complex<float>>(product);
    case DeviceElement::complex128:
      return multiply_elements<std::complex<double>>(product);
  }
}

/// Calls `use` with the values as a list, as generated programs have them; no more than `max`.
template <std::size_t max, class T, class Use, std::size_t... I>
void with_list(const std::vector<T>& values, const Use& use, std::index_sequence<I...> = {}) {
  if (values.size() == sizeof...(I)) return use(std::initializer_list<T>{values[I]...});
  if constexpr (sizeof...(I) < max) return with_list<max>(values, use, std::make_index_sequence<sizeof...(I) + 1>());
  throw Error("the list is too long");
}

}  // namespace

/// Runs an einsum on a stream of its own. Its plan is kept for the next run of the same one.
/// \param layouts  of each operand, then of the result: extents, then strides in elements.
/// \return 0, or 1 after an error, which is then one of Python.
extern "C" int device_contract(const char* type, const char* expression, const Index* layouts, std::size_t words,
                               const void* const* operands, std::size_t count, void* result, const void* alpha,
                               const void* beta) try {
  static auto& plans = *new std::map<std::string, std::unique_ptr<program::DeviceContraction>>;
  Device& device = current_device();
  const DeviceHandle stream = device.make_stream();
  auto& plan = plans[std::string(type) + expression];
  if (!plan) plan = std::make_unique<program::DeviceContraction>("test", expression, type, no_path);
  with_list<80>(std::vector<Index>(layouts, layouts + words), [&](std::initializer_list<Index> numbers) {
    with_list<4>(std::vector<const void*>(operands, operands + count), [&](auto arrays) {
      plan->run(numbers, arrays, result, alpha, beta, multiply, &device, stream.get());
    });
  });
  device.synchronize(stream.get());
  return 0;
} catch (const std::exception&) {
  return 1;
}
