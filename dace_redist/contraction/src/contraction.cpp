// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <string>
#include <utility>

#include "dace_redist_einsum.hpp"
#include "executor.hpp"
#include "matrix.hpp"
#include "plan.hpp"

namespace dace_redist::contraction {

std::unique_ptr<Contraction> make_contraction(const std::string& element_type, const std::string& expression,
                                              Path path) {
  return visit_number(
      element_type, [&](auto number) { return make_typed_contraction<decltype(number)>(expression, std::move(path)); });
}

}  // namespace dace_redist::contraction

namespace dace_redist::program {

Contraction::Contraction(const char* label, const char* expression, const char* element_type,
                         std::initializer_list<std::initializer_list<std::size_t>> path)
    : label_(label), title_("Contraction \"" + label_ + "\"") {
  library::reporting(title_, [&] {
    contraction_ = contraction::make_contraction(element_type, expression, {path.begin(), path.end()});
  });
}
Contraction::~Contraction() = default;

void Contraction::run(std::initializer_list<std::int64_t> layouts, std::initializer_list<const void*> operands,
                      void* result, const void* alpha, const void* beta) {
  if (!contraction_) return;  // its error was reported
  library::reporting(title_, [&] {
    const library::Span span("contract", label_.c_str());
    contraction_->run(layouts.begin(), layouts.size(), operands.begin(), result, alpha, beta);
  });
}

void limit_blas_threads() {
  if (contraction::threads_are_chosen()) return;
#if defined(DACE_REDIST_MKL)
  MKL_Set_Num_Threads(1);
#elif defined(OPENBLAS_VERSION)
  DACE_REDIST_BLAS(openblas_set_num_threads)(1);
#endif
}

}  // namespace dace_redist::program
