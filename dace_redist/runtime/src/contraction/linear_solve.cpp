// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/linear_solve.hpp"

#include <complex>
#include <memory>
#include <string>

#include "core/agreement.hpp"
#include "dace_redist_einsum.hpp"
#include "core/report.hpp"
#include "trace/trace.hpp"

namespace dace_redist {
namespace {

/// A LinearSolver of any element type.
class AnySolver {
 public:
  virtual ~AnySolver() = default;
  virtual void run(Index n, Index columns, program::Matrix matrix, program::Matrix right, program::Matrix result) = 0;
};

template <class T>
class TypedSolver final : public AnySolver {
 public:
  void run(Index n, Index columns, program::Matrix matrix, program::Matrix right, program::Matrix result) override {
    const auto read = [](const program::Matrix& m) {
      return Matrix<const T>{static_cast<const T*>(m.data), m.row_stride, m.column_stride};
    };
    T* const solution = static_cast<T*>(const_cast<void*>(result.data));
    solver_.run(n, columns, read(matrix), read(right), {solution, result.row_stride, result.column_stride});
  }

 private:
  LinearSolver<T> solver_;
};

std::unique_ptr<AnySolver> make_solver(const std::string& element_type) {
  if (element_type == "float32") return std::make_unique<TypedSolver<float>>();
  if (element_type == "float64") return std::make_unique<TypedSolver<double>>();
  if (element_type == "complex64") return std::make_unique<TypedSolver<std::complex<float>>>();
  if (element_type == "complex128") return std::make_unique<TypedSolver<std::complex<double>>>();
  throw Error(text("cannot solve for elements of type ", element_type));
}

}  // namespace

namespace program {

class LinearSolver::Implementation {
 public:
  Implementation(const char* statement, const char* element_type)
      : statement_(statement), element_type_(element_type) {}

  void run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result) {
    try {
      all_or_none(comm, [&] {
        if (!solver_) solver_ = make_solver(element_type_);
        if (extents[0] != extents[1])
          throw Error(text("the matrix has ", extents[0], " rows, but ", extents[1], " columns"));
        const trace::Span span("solve", statement_.c_str(), {});
        solver_->run(extents[0], extents[2], matrix, right, result);
      });
    } catch (const std::exception& error) {
      report(text(statement_, ": ", error.what()));
    }
  }

 private:
  std::string statement_, element_type_;
  std::unique_ptr<AnySolver> solver_;
};

LinearSolver::LinearSolver(const char* statement, const char* element_type)
    : implementation_(std::make_unique<Implementation>(statement, element_type)) {}
LinearSolver::~LinearSolver() = default;
void LinearSolver::run(MPI_Comm comm, const std::int64_t (&extents)[3], Matrix matrix, Matrix right, Matrix result) {
  implementation_->run(comm, extents, matrix, right, result);
}

}  // namespace program
}  // namespace dace_redist
