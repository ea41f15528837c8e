// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The tensors, strategy and options of a plan. Start reading at: Problem.

#include <memory>
#include <string>
#include <vector>

#include "copy/buffer.hpp"
#include "copy/element_operation.hpp"
#include "core/machine.hpp"
#include "core/options.hpp"
#include "layout/distribution.hpp"
#include "layout/schedule.hpp"
#include "plan/given_messages.hpp"

namespace dace_redist {

/// A local array, in elements; empty: as large as this rank's part, in C order.
struct LocalArray {
  std::vector<Index> shape, strides;
};

/// A tensor, where it moves from and to.
struct TensorProblem {
  Distribution source, target;
  Index element_bytes = 0;
  Encoding index_map{};  ///< the elements that move, see IndexMap
  ElementOperation operation{};
  LocalArray source_array{}, target_array{};
  Memory source_memory = Memory::host, target_memory = Memory::host;
  /// Of a step of a plan: type to which its results are rounded when they are stored; opaque: that of the target.
  ElementType rounded_to = ElementType::opaque;
  /// Stand in place of the arrays of the program, in C order; null: there is none. Of a step of a plan.
  std::shared_ptr<Buffer> source_buffer = nullptr, target_buffer = nullptr;
  /// Move in place of what the distributions, of no elements, determine; null: there are none.
  std::shared_ptr<const GivenMessages> messages = nullptr;

  /// Bytes of an element of the target.
  Index target_bytes() const {
    const ElementType type = operation.target;
    return type == ElementType::opaque ? element_bytes : element_bytes_of(type);
  }
  bool on_device() const { return source_memory == Memory::device || target_memory == Memory::device; }
  bool reduces() const { return operation.reduction != Reduction::none && source.replicas() > 1; }
};

/// A redistribution of one or several tensors.
struct Problem {
  std::string label;  ///< names the plan in error messages
  std::string strategy;
  Options options = default_options();
  std::vector<TensorProblem> tensors;
  std::string elements{};  ///< types that the caller has for elements, in words; equal on all ranks
};

/// \throws Error if an option, element size or operation is wrong, or a distribution needs more ranks than there are.
void check_problem(const Problem& problem, int ranks);
void check_element_bytes(Index element_bytes);

/// Everything that must be equal on all ranks, as throw_difference() takes it.
std::string agreed_facts(const Problem& problem);

/// The numbers of a distribution, likewise. \param prefix  of their names.
std::string facts_of(const Distribution& distribution, const std::string& prefix);

/// The layout of a rank's array; without strides if it lies in C order. Of a tensor of 0 dimensions the first element
/// of an array of any number of dimensions is taken; the array of a rank that owns nothing is ignored. \throws Error if
/// the array is too small for the part that `rank` owns, or has strides that are negative or lead out of memory.
LocalLayout local_layout(const Distribution& distribution, const LocalArray& array, Index element_bytes, Index rank,
                         const char* side);

}  // namespace dace_redist
