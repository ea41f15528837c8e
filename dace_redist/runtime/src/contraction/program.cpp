// SPDX-License-Identifier: BSD-3-Clause
// Contractions and linear systems of generated programs.
#include <complex>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contraction/contraction.hpp"
#include "contraction/linear_solve.hpp"
#include "core/agreement.hpp"
#include "dace_redist_einsum.hpp"
#include "core/report.hpp"
#include "trace/trace.hpp"

namespace dace_redist::program {

/// Runs some work, whose error goes to the caller of the program.
template <class Work>
static void reporting(const std::string& label, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    report(text(label, ": ", error.what()));
  }
}

class Contraction::Implementation {
 public:
  Implementation(const char* label, const char* expression, const char* element_type, Path path) : label_(label) {
    reporting(title(), [&] { contraction_ = make_contraction(element_type, expression, std::move(path)); });
  }

  void run(std::initializer_list<Index> layouts, std::initializer_list<const void*> operands, void* result,
           const void* alpha, const void* beta) {
    if (!contraction_) return;  // its error was reported
    reporting(title(), [&] {
      const trace::Span span("contract", label_.c_str(), {});
      layouts_ = layouts;
      operands_ = operands;
      contraction_->run(layouts_, operands_, result, alpha, beta);
    });
  }

 private:
  std::string title() const { return text("Contraction \"", label_, "\""); }

  std::string label_;
  std::unique_ptr<dace_redist::Contraction> contraction_;
  std::vector<Index> layouts_;  // kept for their memory
  std::vector<const void*> operands_;
};

Contraction::Contraction(const char* label, const char* expression, const char* element_type,
                         std::initializer_list<std::initializer_list<std::size_t>> path)
    : implementation_(
          std::make_unique<Implementation>(label, expression, element_type, Path(path.begin(), path.end()))) {}
Contraction::~Contraction() = default;
void Contraction::run(std::initializer_list<std::int64_t> layouts, std::initializer_list<const void*> operands,
                      void* result, const void* alpha, const void* beta) {
  implementation_->run(layouts, operands, result, alpha, beta);
}

class LinearSolver::Implementation {
 public:
  Implementation(const char* statement, const char* element_type)
      : statement_(statement), element_type_(element_type) {}

  void run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result) {
    reporting(statement_, [&] {
      all_or_none(comm, [&] {
        if (extents[0] != extents[1])
          throw Error(text("the matrix must be square, got ", extents[0], " rows and ", extents[1], " columns"));
        const trace::Span span("solve", statement_.c_str(), {});
        solve(extents[0], extents[2], matrix, right, result);
      });
    });
  }

 private:
  void solve(Index n, Index columns, Matrix matrix, Matrix right, Matrix result) {
    if (element_type_ == "float32") return solve_as<float>(n, columns, matrix, right, result);
    if (element_type_ == "float64") return solve_as<double>(n, columns, matrix, right, result);
    if (element_type_ == "complex64") return solve_as<std::complex<float>>(n, columns, matrix, right, result);
    if (element_type_ == "complex128") return solve_as<std::complex<double>>(n, columns, matrix, right, result);
    throw Error(text("cannot solve for elements of type ", element_type_));
  }

  template <class T>
  void solve_as(Index n, Index columns, Matrix matrix, Matrix right, Matrix result) {
    const auto read = [](const Matrix& m) {
      return dace_redist::Matrix<const T>{static_cast<const T*>(m.data), m.row_stride, m.column_stride};
    };
    T* const solution = static_cast<T*>(const_cast<void*>(result.data));
    solver_.run<T>(n, columns, read(matrix), read(right), {solution, result.row_stride, result.column_stride});
  }

  std::string statement_, element_type_;
  dace_redist::LinearSolver solver_;
};

LinearSolver::LinearSolver(const char* statement, const char* element_type)
    : implementation_(std::make_unique<Implementation>(statement, element_type)) {}
LinearSolver::~LinearSolver() = default;
void LinearSolver::run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result) {
  implementation_->run(comm, extents, matrix, right, result);
}

void limit_blas_threads() { dace_redist::limit_blas_threads(); }

}  // namespace dace_redist::program
