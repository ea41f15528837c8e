// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The steps of an einsum for tensors of given extents and strides: loops, products of matrices, and products with a
/// Khatri-Rao product. typed_contraction.hpp executes them on the CPU, device_program.cpp on a GPU.
///
/// Start reading at: PlannedEinsum.

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "einsum.hpp"
#include "executor.hpp"
#include "gemm_plan.hpp"
#include "khatri_rao_plan.hpp"
#include "loops.hpp"

namespace dace_redist::contraction {

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
  /// \throws std::invalid_argument if the expression is wrong or the path does not end with one tensor.
  PlannedEinsum(const std::string& expression, Path path, const Executor& executor)
      : einsum_(expression), path_(complete_path(einsum_, std::move(path))), executor_(executor) {}

  /// True: there is a new plan. \param layouts  [count], as of read_layouts().
  /// \throws std::invalid_argument if extents clash, or a tensor has too many dimensions.
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

/// An einsum over arrays, `result = alpha * einsum + beta * result`. The plan, with its workspace, is kept until other
/// extents or strides come.
class Contraction {
 public:
  virtual ~Contraction() = default;

  /// \param layouts  [layouts_count], for each operand, then for the result: extents, then strides in elements.
  /// \param operands  Their first elements; may be null where an extent is 0.
  /// \param alpha, beta  One element each; beta 0 does not read the result.
  /// \throws std::invalid_argument if extents clash.
  virtual void run(const Index* layouts, std::size_t layouts_count, const void* const* operands, void* result,
                   const void* alpha, const void* beta) = 0;

  /// Bytes of the buffers for intermediate tensors and copies, once planned.
  virtual Index workspace_nbytes() const = 0;
};

/// \param element_type  Name as in NumPy. The others as of PlannedEinsum.
/// \throws std::invalid_argument if the type is unknown, too.
std::unique_ptr<Contraction> make_contraction(const std::string& element_type, const std::string& expression,
                                              Path path);

/// The same for the elements of a type, in typed_contraction.hpp; its code is in typed_contraction_*.cpp, as compiling
/// all of it at once would take longest.
template <class T>
std::unique_ptr<Contraction> make_typed_contraction(const std::string& expression, Path path);

}  // namespace dace_redist::contraction
