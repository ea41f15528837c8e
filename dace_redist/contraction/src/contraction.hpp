// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// An einsum of any number of tensors in main memory, planned at the first run and when extents change.

#include <cstddef>
#include <memory>
#include <string>

#include "einsum.hpp"

namespace dace_redist {

/// An einsum over arrays, `result = alpha * einsum + beta * result`. The plan, with its workspace, is kept until other
/// extents or strides come.
class Contraction {
 public:
  virtual ~Contraction() = default;

  /// \param layouts  [layouts_count], for each operand, then for the result: extents, then strides in elements.
  /// \param operands  Their first elements; may be null where an extent is 0.
  /// \param alpha, beta  One element each; beta 0 does not read the result.
  /// \throws Error if extents clash.
  virtual void run(const Index* layouts, std::size_t layouts_count, const void* const* operands, void* result,
                   const void* alpha, const void* beta) = 0;

  /// Bytes of the buffers for intermediate tensors and copies, once planned.
  virtual Index workspace_nbytes() const = 0;
};

/// \param element_type  Name as in NumPy.
/// \param expression  With an arrow, such as `ijk,ja,ka->ia`.
/// \param path  As opt_einsum's; empty: all tensors in one step.
/// \throws Error if the type is unknown, the expression is wrong or the path does not end with one tensor.
std::unique_ptr<Contraction> make_contraction(const std::string& element_type, const std::string& expression,
                                              Path path);

/// Limits BLAS to one thread unless the environment chooses the number: every rank is one of several on its node.
void limit_blas_threads();

}  // namespace dace_redist
