// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The steps of an einsum for tensors of given extents and strides: loops, products of matrices, and products with a
/// Khatri-Rao product. contraction.cpp executes them on the CPU, device_program.cpp on a GPU.
///
/// Start reading at: PlannedEinsum.

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "einsum.hpp"
#include "executor.hpp"
#include "gemm_plan.hpp"
#include "khatri_rao_plan.hpp"
#include "loops.hpp"

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

/// An einsum whose plan is kept until other extents or strides come.
class PlannedEinsum {
 public:
  /// \param path  As opt_einsum's; empty: all tensors in one step. A step of several tensors goes from left to right.
  /// \throws Error if the expression is wrong or the path does not end with one tensor.
  PlannedEinsum(const std::string& expression, Path path, const Executor& executor)
      : einsum_(expression), path_(complete_path(einsum_, std::move(path))), executor_(executor) {}

  /// True: there is a new plan. \param layouts  [count], as of read_layouts().
  /// \throws Error if extents clash, or a tensor has too many dimensions.
  bool update(const Index* layouts, std::size_t count);

  /// Of the last update.
  const ContractionPlan& plan() const { return plan_; }

 private:
  Einsum einsum_;
  Path path_;
  Executor executor_;
  std::vector<Index> layouts_;  // those of the plan
  bool is_planned_ = false;
  ContractionPlan plan_;
};

}  // namespace dace_redist
