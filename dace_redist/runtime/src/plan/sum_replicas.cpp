// SPDX-License-Identifier: BSD-3-Clause
#include "plan/sum_replicas.hpp"

#include <complex>
#include <cstdint>
#include <map>
#include <string>

#include "plan/registry.hpp"

namespace dace_redist {
namespace {

template <class T>
SummedType type_of(MPI_Datatype mpi_type) {
  return {mpi_type, add_blocks<T>};
}

const std::map<std::string, SummedType>& summed_types() {
  static const std::map<std::string, SummedType> types{
      {"SumReplicas int8", type_of<std::int8_t>(MPI_INT8_T)},
      {"SumReplicas int16", type_of<std::int16_t>(MPI_INT16_T)},
      {"SumReplicas int32", type_of<std::int32_t>(MPI_INT32_T)},
      {"SumReplicas int64", type_of<std::int64_t>(MPI_INT64_T)},
      {"SumReplicas uint8", type_of<std::uint8_t>(MPI_UINT8_T)},
      {"SumReplicas uint16", type_of<std::uint16_t>(MPI_UINT16_T)},
      {"SumReplicas uint32", type_of<std::uint32_t>(MPI_UINT32_T)},
      {"SumReplicas uint64", type_of<std::uint64_t>(MPI_UINT64_T)},
      {"SumReplicas float32", type_of<float>(MPI_FLOAT)},
      {"SumReplicas float64", type_of<double>(MPI_DOUBLE)},
      {"SumReplicas complex64", type_of<std::complex<float>>(MPI_C_FLOAT_COMPLEX)},
      {"SumReplicas complex128", type_of<std::complex<double>>(MPI_C_DOUBLE_COMPLEX)},
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
