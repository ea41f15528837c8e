// SPDX-License-Identifier: BSD-3-Clause
#include "plan/sum_replicas.hpp"

#include <map>
#include <string>

#include "plan/registry.hpp"

namespace dace_redist {
namespace {

const std::map<std::string, SummedType>& summed_types() {
  static const std::map<std::string, SummedType> types{
      {"SumReplicas int8", {MPI_INT8_T, ElementType::int8}},
      {"SumReplicas int16", {MPI_INT16_T, ElementType::int16}},
      {"SumReplicas int32", {MPI_INT32_T, ElementType::int32}},
      {"SumReplicas int64", {MPI_INT64_T, ElementType::int64}},
      {"SumReplicas uint8", {MPI_UINT8_T, ElementType::uint8}},
      {"SumReplicas uint16", {MPI_UINT16_T, ElementType::uint16}},
      {"SumReplicas uint32", {MPI_UINT32_T, ElementType::uint32}},
      {"SumReplicas uint64", {MPI_UINT64_T, ElementType::uint64}},
      {"SumReplicas float32", {MPI_FLOAT, ElementType::float32}},
      {"SumReplicas float64", {MPI_DOUBLE, ElementType::float64}},
      {"SumReplicas complex64", {MPI_C_FLOAT_COMPLEX, ElementType::complex64}},
      {"SumReplicas complex128", {MPI_C_DOUBLE_COMPLEX, ElementType::complex128}},
  };
  return types;
}

const bool registered = [] {
  for (const auto& [name, type] : summed_types()) register_strategy(name, make_plan<SumReplicasPlan>);
  return true;
}();

}  // namespace

SummedType summed_type(const std::string& strategy) {
  const auto found = summed_types().find(strategy);
  if (found == summed_types().end()) throw Error(text("there is no strategy \"", strategy, "\""));
  return found->second;
}

}  // namespace dace_redist
