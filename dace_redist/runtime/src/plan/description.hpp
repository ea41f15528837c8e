// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What a redistribution is made from: descriptors, local arrays, options; and the comparison between ranks.

#include <string>
#include <vector>

#include "copy/element_operation.hpp"
#include "core/mpi.hpp"
#include "device/device.hpp"
#include "layout/distribution.hpp"
#include "layout/schedule.hpp"
#include "plan/options.hpp"

namespace dace_redist {

/// One redistribution as generated code describes it.
struct Description {
  std::string label;  ///< names the node in error messages
  std::string strategy;
  Index element_bytes = 0;
  Options options;
  Encoding source, target;              ///< distributions
  Encoding source_local, target_local;  ///< [ndim] extents, then [ndim] strides, in elements, of this rank's arrays
  Encoding index_map{};                 ///< which elements move where to, see IndexMap
  ElementOperation operation{};         ///< what is computed with elements on their way
  ReplicaPolicy replicas{};             ///< which replicas send and receive
  Memory source_memory = Memory::host;  ///< where the arrays lie
  Memory target_memory = Memory::host;
  std::vector<Description> tensors{};  ///< of several in one exchange: all of them

  bool on_device() const { return source_memory == Memory::device || target_memory == Memory::device; }
  bool all_on_device() const { return source_memory == Memory::device && target_memory == Memory::device; }
};

/// \throws Error on every rank, naming the first difference, unless all ranks describe the same. Collective.
void check_agreement(MPI_Comm comm, const Description& description);

/// The layout of a rank's array, as a Description has it. Of a tensor of 0 dimensions the first element of an array of
/// any number of dimensions is taken; of a rank that owns nothing the array is not looked at.
/// \throws Error if the array is too small for what `rank` owns, or runs backwards.
LocalLayout local_layout(const Distribution& distribution, const Encoding& local, Index rank, const char* side);

}  // namespace dace_redist
