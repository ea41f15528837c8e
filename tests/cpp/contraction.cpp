// Contractions behind a C interface, for tests and benchmarks that choose them at run time.
#include "contraction.hpp"

#include <cstddef>
#include <cstdio>
#include <memory>
#include <utility>

namespace {

using dace_redist::Contraction;
using dace_redist::Index;
using dace_redist::Path;

/// Runs some code; what it throws becomes a text.
template <class Code>
int guarded(char* message, std::size_t length, const Code& code) {
  try {
    code();
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(message, length, "%s", error.what());
    return 1;
  }
}

}  // namespace

extern "C" {

/// :param path: For each step its number of positions, then these.
int contraction_make(const char* type, const char* expression, const Index* path, std::size_t words, void** made,
                     char* message, std::size_t length) {
  return guarded(message, length, [&] {
    Path steps;
    for (std::size_t at = 0; at < words; at += 1 + static_cast<std::size_t>(path[at]))
      steps.emplace_back(path + at + 1, path + at + 1 + path[at]);
    dace_redist::limit_blas_threads();
    *made = dace_redist::make_contraction(type, expression, std::move(steps)).release();
  });
}

int contraction_run(void* made, const Index* layouts, std::size_t words, const void* const* operands, std::size_t,
                    void* result, const void* alpha, const void* beta, char* message, std::size_t length) {
  return guarded(message, length,
                 [&] { static_cast<Contraction*>(made)->run(layouts, words, operands, result, alpha, beta); });
}

std::size_t contraction_workspace_nbytes(const void* made) {
  return static_cast<std::size_t>(static_cast<const Contraction*>(made)->workspace_nbytes());
}

void contraction_free(void* made) { delete static_cast<Contraction*>(made); }
}
