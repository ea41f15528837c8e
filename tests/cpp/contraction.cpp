// Contractions of any element type behind a C interface, for tests and benchmarks that choose them at run time.
#include "contraction/contraction.hpp"

#include <cstdio>
#include <memory>


namespace {

using dace_redist::Contraction;
using dace_redist::Index;
using dace_redist::Path;

struct AnyContraction {
  virtual ~AnyContraction() = default;
  virtual void run(const Index* layouts, std::size_t words, const void* const* operands, std::size_t count,
                   void* result, const void* alpha, const void* beta) = 0;
  virtual std::size_t workspace_nbytes() const = 0;
};

template <class T>
struct Typed final : AnyContraction {
  Typed(const char* expression, Path path) : contraction(expression, std::move(path)) {}
  void run(const Index* layouts, std::size_t words, const void* const* operands, std::size_t count, void* result,
           const void* alpha, const void* beta) override {
    std::vector<const T*> typed;
    for (std::size_t i = 0; i < count; ++i) typed.push_back(static_cast<const T*>(operands[i]));
    contraction.run({layouts, words}, {typed.data(), count}, static_cast<T*>(result), *static_cast<const T*>(alpha),
                    *static_cast<const T*>(beta));
  }
  std::size_t workspace_nbytes() const override { return contraction.workspace_nbytes(); }
  Contraction<T> contraction;
};

std::unique_ptr<AnyContraction> make(const std::string& type, const char* expression, Path path) {
  if (type == "float32") return std::make_unique<Typed<float>>(expression, std::move(path));
  if (type == "float64") return std::make_unique<Typed<double>>(expression, std::move(path));
  if (type == "complex64") return std::make_unique<Typed<std::complex<float>>>(expression, std::move(path));
  if (type == "complex128") return std::make_unique<Typed<std::complex<double>>>(expression, std::move(path));
  if (type == "int32") return std::make_unique<Typed<std::int32_t>>(expression, std::move(path));
  if (type == "int64") return std::make_unique<Typed<std::int64_t>>(expression, std::move(path));
  throw dace_redist::Error("unknown type " + type);
}

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
    dace_redist::blas::limit_threads();
    *made = make(type, expression, std::move(steps)).release();
  });
}

int contraction_run(void* made, const Index* layouts, std::size_t words, const void* const* operands, std::size_t count,
                    void* result, const void* alpha, const void* beta, char* message, std::size_t length) {
  return guarded(message, length, [&] {
    static_cast<AnyContraction*>(made)->run(layouts, words, operands, count, result, alpha, beta);
  });
}

std::size_t contraction_workspace_nbytes(const void* made) {
  return static_cast<const AnyContraction*>(made)->workspace_nbytes();
}

void contraction_free(void* made) { delete static_cast<AnyContraction*>(made); }
}
