// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

#include <dlfcn.h>

#include <map>

#include "dace_redist_einsum.hpp"
#include "core/report.hpp"
#include "trace/trace.hpp"

namespace dace_redist {
namespace {

std::map<std::string, MakeContraction>& contractions() {
  static std::map<std::string, MakeContraction> all;  // made by the first type that registers, in whatever order
  return all;
}

}  // namespace

void register_contraction(const std::string& element_type, MakeContraction make) {
  contractions()[element_type] = make;
}

/// Loads the contractions of integers, which lie beside this library if they were built.
static void load_integers() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&register_contraction), &here) == 0) return;
  const std::string path = here.dli_fname, name = "libdace_redist_einsum_integers.so";
  dlopen((path.substr(0, path.find_last_of('/') + 1) + name).c_str(), RTLD_NOW);  // its types register themselves
}

MakeContraction find_contraction(const std::string& element_type) {
  auto found = contractions().find(element_type);
  if (found == contractions().end() && element_type.find("int") != std::string::npos) {
    load_integers();
    found = contractions().find(element_type);
  }
  if (found == contractions().end()) throw Error(text("cannot contract elements of type ", element_type));
  return found->second;
}

namespace program {

class Contraction::Implementation {
 public:
  Implementation(const char* label, const char* expression, const char* element_type, Path path) : label_(label) {
    reporting([&] { contraction_ = find_contraction(element_type)(expression, std::move(path)); });
  }

  void run(Values<Index> layouts, Values<const void*> operands, void* result, const void* alpha, const void* beta) {
    reporting([&] {
      const trace::Span span("contract", label_.c_str(), {});
      if (contraction_) contraction_->run(layouts, operands, result, alpha, beta);  // else its error was reported
    });
  }

 private:
  template <class Work>
  void reporting(const Work& work) const {
    try {
      work();
    } catch (const std::exception& error) {
      report(text("Contraction \"", label_, "\": ", error.what()));
    }
  }

  std::string label_;
  std::unique_ptr<AnyContraction> contraction_;
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

void limit_blas_threads() { blas::limit_threads(); }

}  // namespace program
}  // namespace dace_redist
