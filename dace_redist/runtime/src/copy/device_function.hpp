// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Marks what runs on a processor and on a GPU, and loops there whose arrays are to be in registers.

#ifdef __CUDACC__
#define DACE_REDIST_HOST_DEVICE __host__ __device__
#else
#define DACE_REDIST_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define DACE_REDIST_UNROLL _Pragma("unroll")
#else
#define DACE_REDIST_UNROLL
#endif
