// SPDX-License-Identifier: BSD-3-Clause
#include "plan/sum_replicas.hpp"

#include <map>
#include <string>

#include "plan/registry.hpp"

namespace dace_redist {
namespace {

const std::map<std::string, SummedType>& summed_types() {
  static const std::map<std::string, SummedType> types = [] {
#define DACE_REDIST_MPI_TYPE(enumerator, name, type, kind, mpi) mpi,
    const MPI_Datatype mpi_types[] = {MPI_DATATYPE_NULL, DACE_REDIST_ELEMENT_TYPES(DACE_REDIST_MPI_TYPE)};
#undef DACE_REDIST_MPI_TYPE
    std::map<std::string, SummedType> summed;
    for (Index i = 0; i < element_type_count; ++i)
      if (element_types[i].kind >= ElementKind::integer)
        summed[text("SumReplicas ", element_types[i].name)] = {mpi_types[i], static_cast<ElementType>(i)};
    return summed;
  }();
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
