// Contractions of arrays in the memory of a device, which main memory stands in for, of every element type: copies,
// constants, factors and the order with a stream. Products of matrices are plain loops here.
//
// Usage: DACE_REDIST_DEVICE=host mpi_device_contraction
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <random>

#include "contraction/einsum.hpp"
#include "dace_redist_device_einsum.hpp"
#include "device/device.hpp"

namespace {

using namespace dace_redist;
using program::DeviceElement;
using program::DeviceProduct;

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

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

template <class T>
T number(Index i) {
  return T(static_cast<float>(i % 7 - 3));
}
template <>
std::complex<float> number(Index i) {
  return {static_cast<float>(i % 7 - 3), static_cast<float>(i % 3 - 1)};
}
template <>
std::complex<double> number(Index i) {
  return number<std::complex<float>>(i);
}

/// An array in the memory of the device, and pinned main memory by which it is filled and read.
template <class T>
struct DeviceArray {
  DeviceArray(Device& device, const Layout& layout, Stream stream) : device_(device) {
    Index last = 0;
    for (std::size_t d = 0; d < layout.extents.size(); ++d) last += (layout.extents[d] - 1) * layout.strides[d];
    for (Index i = 0; i <= std::max<Index>(last, 0); ++i) values.push_back(number<T>(i + 1));
    nbytes_ = static_cast<Index>(values.size() * sizeof(T));
    pinned_ = device_.pin(values.data(), nbytes_);
    memory_ = device_.allocate(nbytes_);
    data = memory_.get();
    device_.copy(data, values.data(), nbytes_, stream);
    device_.synchronize(stream);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void read(Stream stream) {
    device_.copy(values.data(), data, nbytes_, stream);
    device_.synchronize(stream);
  }

  std::vector<T> values;
  void* data = nullptr;

 private:
  Device& device_;
  Index nbytes_ = 0;
  DeviceHandle pinned_, memory_;
};

/// Calls `visit` with the positions in each tensor for all values of all indices.
template <class Visit>
void for_all(const std::vector<Layout>& tensors, const Visit& visit) {
  Layout all;
  for (const Layout& tensor : tensors)
    for (std::size_t d = 0; d < tensor.indices.size(); ++d)
      if (!all.has(tensor.indices[d])) all.add(tensor.indices[d], tensor.extents[d], 0);
  for (Index i = 0; i < all.count(); ++i) {
    std::vector<std::size_t> positions;
    for (const Layout& tensor : tensors) {
      Index rest = i, position = 0;
      for (std::size_t d = all.indices.size(); d-- > 0; rest /= all.extents[d])
        if (tensor.has(all.indices[d]))
          position += rest % all.extents[d] * tensor.strides[tensor.position(all.indices[d])];
      positions.push_back(static_cast<std::size_t>(position));
    }
    visit(positions);
  }
}

/// Calls `use` with the values as a list, as generated programs have them; no more than `max`.
template <std::size_t max, class T, class Use, std::size_t... I>
void with_list(const std::vector<T>& values, const Use& use, std::index_sequence<I...> = {}) {
  if (values.size() == sizeof...(I)) return use(std::initializer_list<T>{values[I]...});
  if constexpr (sizeof...(I) < max) with_list<max>(values, use, std::make_index_sequence<sizeof...(I) + 1>());
}

/// An einsum on a stream, with several factors by one plan.
template <class T>
void check(const char* type, const std::string& expression, const std::vector<Index>& words) {
  Device& device = current_device();
  const DeviceHandle own = device.make_stream();
  const Stream stream = own.get();
  const TensorLayouts layouts = read_layouts(Einsum(expression), words);
  std::vector<Layout> tensors = layouts.operands;
  tensors.push_back(layouts.result);
  program::DeviceContraction contraction("test", expression.c_str(), type, {});
  for (const auto& [alpha, beta] : {std::pair(T(1), T(0)), std::pair(T(2), T(0)), std::pair(T(-1), T(3))}) {
    std::list<DeviceArray<T>> operands;
    std::vector<const void*> data;
    for (const Layout& layout : layouts.operands) data.push_back(operands.emplace_back(device, layout, stream).data);
    DeviceArray<T> result(device, layouts.result, stream);
    std::vector<T> expected = result.values;
    for_all({layouts.result}, [&](const std::vector<std::size_t>& at) { expected[at[0]] *= beta; });
    for_all(tensors, [&, alpha = alpha](const std::vector<std::size_t>& at) {
      T product = alpha;
      auto position = at.begin();
      for (const DeviceArray<T>& operand : operands) product *= operand.values[*position++];
      expected[at.back()] += product;
    });
    with_list<24>(words, [&, alpha = alpha, beta = beta](std::initializer_list<Index> numbers) {
      with_list<3>(data, [&](std::initializer_list<const void*> arrays) {
        contraction.run(numbers, arrays, result.data, &alpha, &beta, multiply, &device, stream);
      });
    });
    result.read(stream);
    require(result.values == expected, std::string(type) + " " + expression + " is wrong");
  }
}

std::mt19937 generator(7);

Index random_number(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(generator); }

/// Up to three of these letters, `repeated` times or once each.
std::string random_indices(const std::string& letters, bool repeated) {
  std::string found;
  for (Index left = letters.empty() ? 0 : random_number(0, 3); left > 0; --left) {
    const char index = letters[static_cast<std::size_t>(random_number(0, static_cast<Index>(letters.size()) - 1))];
    if (repeated || found.find(index) == std::string::npos) found += index;
  }
  return found;
}

/// An einsum of one to three operands; dimensions lie in any order, some with gaps, and one in ten may be empty.
template <class T>
void check_random(const char* type) {
  std::vector<std::string> tensors;
  std::string expression, all;
  for (Index left = random_number(1, 3); left > 0; --left) {
    tensors.push_back(random_indices("ijkl", random_number(0, 5) == 0));
    all += tensors.back();
    expression += (expression.empty() && tensors.size() == 1 ? "" : ",") + tensors.back();
  }
  tensors.push_back(random_indices(all, false));
  std::map<char, Index> extents;
  const Index least = random_number(0, 9) == 0 ? 0 : 1;
  for (const char index : all) extents[index] = random_number(least, 4);
  std::vector<Index> words;
  for (const std::string& indices : tensors) {
    std::vector<std::size_t> order(indices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (random_number(0, 1) == 0) std::shuffle(order.begin(), order.end(), generator);
    std::vector<Index> strides(indices.size());
    Index distance = random_number(0, 9) == 0 ? 2 : 1;
    for (std::size_t d = order.size(); d-- > 0;) {
      strides[order[d]] = distance;
      distance *= std::max<Index>(1, extents[indices[order[d]]] + (random_number(0, 4) == 0 ? 1 : 0));
    }
    for (const char index : indices) words.push_back(extents[index]);
    words.insert(words.end(), strides.begin(), strides.end());
  }
  check<T>(type, expression + "->" + tensors.back(), words);
}

template <class T>
void check_all(const char* type) {
  check<T>(type, "ij,jk->ik", {2, 3, 3, 1, 3, 4, 4, 1, 2, 4, 4, 1});
  check<T>(type, "ij,jk->ki", {2, 3, 7, 2, 3, 4, 1, 3, 4, 2, 3, 1});  // strides, and a transposed result
  check<T>(type, "ijb,jkb->ikb", {2, 3, 5, 15, 5, 1, 3, 4, 5, 20, 5, 1, 2, 4, 5, 20, 5, 1});  // all are copied
  check<T>(type, "ii->i", {3, 3, 3, 1, 3, 1});
  check<T>(type, "ij->ji", {2, 3, 3, 1, 3, 2, 2, 1});
  check<T>(type, "ij->i", {2, 3, 3, 1, 2, 1});
  check<T>(type, "ij,kl->", {2, 3, 3, 1, 4, 5, 5, 1});
  check<T>(type, "ij,jk->ik", {2, 0, 1, 1, 0, 4, 4, 1, 2, 4, 4, 1});  // a sum without terms
  check<T>(type, "ij,jk->ik", {0, 3, 3, 1, 3, 4, 4, 1, 0, 4, 4, 1});  // no result
  for (int turn = 0; turn < 2000; ++turn) check_random<T>(type);
}

}  // namespace

int main() {
  check_all<float>("float32");
  check_all<double>("float64");
  check_all<std::complex<float>>("complex64");
  check_all<std::complex<double>>("complex128");
  bool refused = false;
  try {
    program::DeviceContraction("test", "ij->ji", "int32", {});
  } catch (const std::exception& error) {
    refused = std::string(error.what()).find("not int32") != std::string::npos;
  }
  require(refused, "elements of type int32 are refused");
}
