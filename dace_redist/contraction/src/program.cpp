// SPDX-License-Identifier: BSD-3-Clause
// Contractions of generated programs.
#include <utility>

#include "contraction.hpp"
#include "core/report.hpp"
#include "dace_redist_einsum.hpp"
#include "trace/trace.hpp"

namespace dace_redist::program {

Contraction::Contraction(const char* label, const char* expression, const char* element_type,
                         std::initializer_list<std::initializer_list<std::size_t>> path)
    : label_(label), title_(text("Contraction \"", label, "\"")) {
  reporting(title_, [&] { contraction_ = make_contraction(element_type, expression, Path(path.begin(), path.end())); });
}
Contraction::~Contraction() = default;

void Contraction::run(std::initializer_list<std::int64_t> layouts, std::initializer_list<const void*> operands,
                      void* result, const void* alpha, const void* beta) {
  if (!contraction_) return;  // its error was reported
  reporting(title_, [&] {
    const trace::Span span("contract", label_.c_str(), {});
    contraction_->run(layouts.begin(), layouts.size(), operands.begin(), result, alpha, beta);
  });
}

void limit_blas_threads() { dace_redist::limit_blas_threads(); }

}  // namespace dace_redist::program
