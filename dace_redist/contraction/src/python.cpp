// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Functions that Python calls to contract local arrays (dace_redist/native/contraction.py).

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "dace_redist_einsum.hpp"
#include "plan.hpp"

namespace {

using dace_redist::contraction::Path;

/// Of the last function that failed in this thread.
std::string& error_text() {
  thread_local std::string text;
  return text;
}

struct PythonContraction {
  std::string expression;  // the label of its spans
  std::unique_ptr<dace_redist::contraction::Contraction> contraction;
};

}  // namespace

extern "C" {

/// Text of the error of the last function here that failed in this thread.
DR_API const char* dr_python_contraction_error() { return error_text().c_str(); }

/// Parameters as of program::Contraction.
/// \param path  [path_count], for each step the number of its operands, then their positions.
/// \return  Null if an argument is wrong.
DR_API void* dr_python_contraction_create(const char* expression, const char* element_type, const std::int64_t* path,
                                          std::int64_t path_count) {
  try {
    dace_redist::program::limit_blas_threads();
    Path steps;
    for (std::int64_t at = 0; at < path_count; at += 1 + path[at])
      steps.emplace_back(path + at + 1, path + at + 1 + path[at]);
    auto made = dace_redist::contraction::make_contraction(element_type, expression, std::move(steps));
    return std::make_unique<PythonContraction>(PythonContraction{expression, std::move(made)}).release();
  } catch (const std::exception& error) {
    error_text() = error.what();
    return nullptr;
  }
}

/// `result = alpha * einsum(operands) + beta * result`; beta 0 does not read the result.
/// \param layouts  [layouts_count], of each operand, then of the result: extents, then strides in elements.
/// \return  0, or 1 if it failed.
DR_API int dr_python_contraction_run(void* contraction, const std::int64_t* layouts, std::int64_t layouts_count,
                                     const void* const* operands, void* result, const void* alpha, const void* beta) {
  try {
    auto& einsum = *static_cast<PythonContraction*>(contraction);
    const dace_redist::library::Span span("contract", einsum.expression.c_str());
    einsum.contraction->run(layouts, static_cast<std::size_t>(layouts_count), operands, result, alpha, beta);
    return 0;
  } catch (const std::exception& error) {
    error_text() = error.what();
    return 1;
  }
}

/// Bytes of the buffers that the last run took.
DR_API std::int64_t dr_python_contraction_workspace(const void* contraction) {
  return static_cast<const PythonContraction*>(contraction)->contraction->workspace_nbytes();
}

DR_API void dr_python_contraction_free(void* contraction) { delete static_cast<PythonContraction*>(contraction); }

}  // extern "C"
