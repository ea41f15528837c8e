// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Reduces several blocks into one in a single pass over the target.

#include <cstdint>
#include <vector>

#include "copy/element_operation.hpp"
#include "dace_redist_types.h"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// A summand: a part of an array or of a packed message.
struct PartialBlock {
  const ElementKernel* kernel = nullptr;  ///< its operation on the target
  const char* source = nullptr;           ///< start of the array or message
  std::int64_t source_bytes = 1;          ///< of an element there
  StridedBlock block;
};

/// The steps of sums of summands, elements of the target's type.
struct SumSteps {
  ElementKernel store;   ///< to the target, with beta
  ElementKernel reduce;  ///< into another sum
};

/// Reduces the blocks in a binary tree, neighbouring groups of 1, 2, 4, ... blocks to one, in each part of the target
/// while it is in the first-level cache: the target goes to memory once.
///
/// \param blocks  At least one, of ReductionSteps::leaf(). Counts and target sides of all are equal. Used as scratch:
///                their dimensions are ordered by target stride, and merged where they are contiguous on all sides.
/// \param target_bytes  Of an element.
/// \param target  Start of the array, which overlaps no source.
/// \param stream  Use non-temporal stores. Ignored unless 2 to max_batch blocks are reduced,
///                nothing is converted, scaled or updated, and rows are contiguous on all sides, of 1 KiB or more.
DR_API void reduce_blocks(std::vector<PartialBlock>& blocks, const SumSteps& sums, std::int64_t target_bytes,
                          char* target, bool stream);

/// The steps of the partial results of an element, see ElementSteps: the first one is stored (with beta), later ones
/// are reduced into the target.
class DR_API ReductionSteps {
 public:
  /// \throws Error if the operation cannot be carried out with these types.
  void set(const ElementOperation& operation, std::int64_t source_bytes);

  /// \param summand_index  0: the first one, which is stored.
  /// \param packed  True if it comes from a message, false if from the source array.
  /// \return an empty block with the kernel and the size of its elements.
  PartialBlock partial(std::int64_t summand_index, bool packed) const;
  /// As partial(), for reduce_blocks().
  PartialBlock leaf(std::int64_t summand_index, bool packed) const;
  const SumSteps& sums() const { return sums_; }

  std::int64_t target_bytes() const { return first_.direct().target_bytes; }

 private:
  PartialBlock made(const ElementSteps& steps, bool packed) const;

  ElementSteps first_, further_, leaf_;
  ElementKernel copy_;
  SumSteps sums_;
};

}  // namespace dace_redist
