// SPDX-License-Identifier: BSD-3-Clause
#include "plan/sum_replicas.hpp"

#include "plan/registry.hpp"

namespace dace_redist {

template <class T>
using Registered = RegisteredStrategy<SumReplicasPlan<T>>;

static const Registered<std::int8_t> of_int8("SumReplicas int8");
static const Registered<std::int16_t> of_int16("SumReplicas int16");
static const Registered<std::int32_t> of_int32("SumReplicas int32");
static const Registered<std::int64_t> of_int64("SumReplicas int64");
static const Registered<std::uint8_t> of_uint8("SumReplicas uint8");
static const Registered<std::uint16_t> of_uint16("SumReplicas uint16");
static const Registered<std::uint32_t> of_uint32("SumReplicas uint32");
static const Registered<std::uint64_t> of_uint64("SumReplicas uint64");
static const Registered<float> of_float32("SumReplicas float32");
static const Registered<double> of_float64("SumReplicas float64");
static const Registered<std::complex<float>> of_complex64("SumReplicas complex64");
static const Registered<std::complex<double>> of_complex128("SumReplicas complex128");

}  // namespace dace_redist
