// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Contractions of arrays on a GPU by cuBLAS, which the program is linked with.

#include <cublas_v2.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "dace_redist_device_einsum.hpp"

namespace dace_redist {
namespace program {

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed: " + cublasGetStatusString(status));
}

/// Has cuBLAS find factors in main memory as long as it lives.
class FactorsInMainMemory {
 public:
  explicit FactorsInMainMemory(cublasHandle_t handle) : handle_(handle) {
    check_cublas(cublasGetPointerMode(handle, &before_), "cublasGetPointerMode");
    check_cublas(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
  }
  ~FactorsInMainMemory() { (void)cublasSetPointerMode(handle_, before_); }
  FactorsInMainMemory(const FactorsInMainMemory&) = delete;
  FactorsInMainMemory& operator=(const FactorsInMainMemory&) = delete;

 private:
  cublasHandle_t handle_;
  cublasPointerMode_t before_ = CUBLAS_POINTER_MODE_HOST;
};

/// A MultiplyOnDevice. \param library  a cublasHandle_t.
inline void multiply_by_cublas(void* library, const DeviceProduct& product, void* stream) {
  const cublasHandle_t handle = static_cast<cublasHandle_t>(library);
  check_cublas(cublasSetStream(handle, static_cast<cudaStream_t>(stream)), "cublasSetStream");
  const FactorsInMainMemory factors(handle);
  constexpr cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
  const cudaDataType_t type = types[static_cast<int>(product.element)];
  const bool is_double = product.element == DeviceElement::float64 || product.element == DeviceElement::complex128;
  const cublasComputeType_t compute = is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  const auto sign = [](const DeviceProduct::Matrix& matrix) { return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const DeviceProduct::Matrix &a = product.a, &b = product.b;
  if (product.batches == 1)
    return check_cublas(cublasGemmEx_64(handle, sign(a), sign(b), product.m, product.n, product.k, product.alpha,
                                        a.data, type, a.leading, b.data, type, b.leading, product.beta, product.c, type,
                                        product.c_leading, compute, CUBLAS_GEMM_DEFAULT),
                        "cublasGemmEx_64");
  check_cublas(cublasGemmStridedBatchedEx_64(handle, sign(a), sign(b), product.m, product.n, product.k, product.alpha,
                                             a.data, type, a.leading, a.step, b.data, type, b.leading, b.step,
                                             product.beta, product.c, type, product.c_leading, product.c_step,
                                             product.batches, compute, CUBLAS_GEMM_DEFAULT),
               "cublasGemmStridedBatchedEx_64");
}

/// DeviceContraction::run() by cuBLAS, with factors as numbers.
template <class T>
void contract(DeviceContraction& contraction, std::initializer_list<std::int64_t> layouts,
              std::initializer_list<const void*> operands, T* result, T alpha, T beta, cublasHandle_t handle,
              cudaStream_t stream) {
  contraction.run(layouts, operands, result, &alpha, &beta, multiply_by_cublas, handle, stream);
}

}  // namespace program
}  // namespace dace_redist
