// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What programs that DaCe generates call to contract tensors in the memory of a device. Errors: as in
/// dace_redist_program.hpp. The library plans, and copies what needs another order; the products of matrices are calls
/// of a library for the device, such as cuBLAS (dace_redist_cublas.hpp), that the program is linked with.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "dace_redist.h"

namespace dace_redist {
namespace program {

/// The elements that a library for a device multiplies.
enum class DeviceElement { float32, float64, complex64, complex128 };

/// A batch of products of matrices in column-major order, `c = alpha * a b + beta * c`: a is m x k, b is k x n. One
/// that is transposed is stored the other way round.
struct DeviceProduct {
  struct Matrix {
    const void* data;
    bool transposed;
    std::int64_t leading;  ///< elements between columns as they are stored
    std::int64_t step;     ///< elements from one matrix of the batch to the next
  };
  DeviceElement element;
  std::int64_t m, n, k, batches;
  Matrix a, b;
  void* c;
  std::int64_t c_leading, c_step;
  const void *alpha, *beta;  ///< one element each, in main memory
};

/// Enqueues products on a stream. \param library  what run() was given.
using MultiplyOnDevice = void (*)(void* library, const DeviceProduct& product, void* stream);

/// An einsum of arrays in the memory of the device that is current in the calling thread; keeps its plan and its
/// workspace, in that memory, from run to run.
class DR_API DeviceContraction {
 public:
  /// Parameters as of Contraction; element_type is one of DeviceElement.
  DeviceContraction(const char* label, const char* expression, const char* element_type,
                    std::initializer_list<std::initializer_list<std::size_t>> path);
  ~DeviceContraction();
  DeviceContraction(const DeviceContraction&) = delete;
  DeviceContraction& operator=(const DeviceContraction&) = delete;

  /// Enqueues `result = alpha * einsum(operands) + beta * result`.
  /// \param layouts  of each operand, then of the result: extents, then strides in elements.
  /// \param multiply, library  what multiplies matrices.
  void run(std::initializer_list<std::int64_t> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta, MultiplyOnDevice multiply, void* library, void* stream);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace program
}  // namespace dace_redist
