// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What programs that DaCe generates call to contract tensors and to solve linear systems. Errors: as in
/// dace_redist_program.hpp. Element types are named as NumPy does: "float64", "complex64", "int32".

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "dace_redist.h"

namespace dace_redist {

class Contraction;

namespace program {

/// An einsum of local arrays; keeps its plan and its workspace from run to run.
class DR_API Contraction {
 public:
  /// \param label  names the node in errors.
  /// \param expression  with an arrow, such as `ijk,ja,ka->ia`.
  /// \param path  positions of the operands that each step takes, as opt_einsum's; empty: all in one step.
  Contraction(const char* label, const char* expression, const char* element_type,
              std::initializer_list<std::initializer_list<std::size_t>> path);
  ~Contraction();
  Contraction(const Contraction&) = delete;
  Contraction& operator=(const Contraction&) = delete;

  /// `result = alpha * einsum(operands) + beta * result`.
  /// \param layouts  of each operand, then of the result: extents, then strides in elements.
  void run(std::initializer_list<std::int64_t> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta);

 private:
  std::string label_, title_;
  std::unique_ptr<dace_redist::Contraction> contraction_;
};

/// Contraction::run() with factors as numbers.
template <class T>
void contract(Contraction& contraction, std::initializer_list<std::int64_t> layouts,
              std::initializer_list<const void*> operands, T* result, T alpha, T beta) {
  contraction.run(layouts, operands, result, &alpha, &beta);
}

/// A matrix of any strides, in elements.
struct Matrix {
  const void* data;
  std::int64_t row_stride, column_stride;
};

/// Solves `G X = B`, where each rank has all of G; keeps its workspace from run to run.
class DR_API LinearSolver {
 public:
  /// \param statement  stands before errors.
  LinearSolver(const char* statement, const char* element_type);
  ~LinearSolver();
  LinearSolver(const LinearSolver&) = delete;
  LinearSolver& operator=(const LinearSolver&) = delete;

  /// Solves on every rank; an error on one of them is an error on all. Collective.
  /// \param extents  rows and columns of G, columns of X; 0 on a rank that has none of them.
  /// \param right  B; null data: the identity, so that X is the inverse of G.
  void run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Has BLAS run on one thread, as every rank is one of several on its node, unless the environment says how many.
DR_API void limit_blas_threads();

}  // namespace program
}  // namespace dace_redist
