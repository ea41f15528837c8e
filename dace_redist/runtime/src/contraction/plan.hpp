// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The steps of an einsum for tensors of given extents and strides: loops, products of matrices, and products with a
/// Khatri-Rao product. contraction.hpp executes them on the CPU, device_program.cpp on a GPU.
///
/// Start reading at: plan_contraction().

#include <array>
#include <cstddef>
#include <variant>
#include <vector>

#include "contraction/einsum.hpp"
#include "contraction/executor.hpp"
#include "contraction/gemm_plan.hpp"
#include "contraction/khatri_rao_plan.hpp"
#include "contraction/loops.hpp"

namespace dace_redist {

/// Location of a tensor that a step reads or writes.
struct TensorPlace {
  /// Kept: an intermediate result. Ones: a constant tensor.
  enum Kind { operand, result, kept, ones };
  Kind kind = kept;
  Index at = 0;  ///< number of the operand; elements from the start of the intermediate results
};

/// `c = alpha * sum(a * b) + beta * c`; alpha and beta are those of the einsum if c is its result, else 1 and 0.
struct PairStep {
  std::array<TensorPlace, 3> places;  ///< by Operand
  std::variant<LoopNest, GemmPlan> method;
};

/// A tensor times a Khatri-Rao product, with the same factors.
struct KhatriRaoStep {
  std::vector<TensorPlace> operands;
  TensorPlace result;
  KhatriRaoPlan plan;
};

struct ContractionPlan {
  std::vector<std::variant<PairStep, KhatriRaoStep>> steps;
  bool is_empty_sum = false;                                ///< no products to sum: alpha is 0
  Index kept_count = 0, scratch_count = 0, ones_count = 0;  ///< elements: intermediates, buffers of a step, constants
};

/// \param path  Of complete_path(); a step of more than two tensors goes from left to right.
/// \throws Error if a tensor has too many dimensions.
ContractionPlan plan_contraction(const TensorLayouts& layouts, const Path& path, const Executor& executor);

}  // namespace dace_redist
