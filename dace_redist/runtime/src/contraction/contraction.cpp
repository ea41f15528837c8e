// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/contraction.hpp"

#include <type_traits>
#include <utility>
#include <variant>

#include "contraction/blas.hpp"
#include "contraction/executor.hpp"
#include "contraction/gemm.hpp"
#include "contraction/khatri_rao.hpp"
#include "contraction/plan.hpp"
#include "core/element_type.hpp"

namespace dace_redist {
namespace {

/// Executes the steps of plans for an element type.
template <class T>
class TypedContraction final : public Contraction {
 public:
  TypedContraction(const std::string& expression, Path path) : einsum_(expression, std::move(path), executor_of<T>) {}

  void run(const Index* layouts, std::size_t layouts_count, const void* const* operands, void* result,
           const void* alpha, const void* beta) override {
    einsum_.update(layouts, layouts_count);
    const ContractionPlan& plan = einsum_.plan();
    T* const kept = reinterpret_cast<T*>(workspace_.reserve(workspace_nbytes()));
    const Arrays arrays{operands,
                        static_cast<T*>(result),
                        kept,
                        kept + plan.kept_count,
                        plan.is_empty_sum ? T(0) : *static_cast<const T*>(alpha),
                        *static_cast<const T*>(beta)};
    for (const auto& step : plan.steps) std::visit([&](const auto& kind) { run_step(kind, arrays); }, step);
  }

  Index workspace_nbytes() const override {
    return (einsum_.plan().kept_count + einsum_.plan().scratch_count) * static_cast<Index>(sizeof(T));
  }

 private:
  /// Memory and factors of a run.
  struct Arrays {
    const void* const* operands;
    T *result, *kept, *scratch;
    T alpha, beta;

    const T* source(const TensorPlace& place) const {
      static const T one(1);
      if (place.kind == TensorPlace::ones) return &one;
      return place.kind == TensorPlace::kept ? kept + place.at : static_cast<const T*>(operands[place.at]);
    }
    T* target(const TensorPlace& place) const { return is_last(place) ? result : kept + place.at; }
    T alpha_of(const TensorPlace& place) const { return is_last(place) ? alpha : T(1); }
    T beta_of(const TensorPlace& place) const { return is_last(place) ? beta : T(0); }

    static bool is_last(const TensorPlace& place) { return place.kind == TensorPlace::result; }
  };

  static void run_step(const PairStep& step, const Arrays& arrays) {
    const auto& [a, b, c] = step.places;
    const auto run = [&, &a = a, &b = b, &c = c](auto&& method) {
      method.run(arrays.alpha_of(c), arrays.source(a), arrays.source(b), arrays.beta_of(c), arrays.target(c));
    };
    if (const auto* loops = std::get_if<LoopNest>(&step.method))
      run(*loops);
    else if constexpr (executor_of<T>.has_blas)
      run(Gemm<T>(std::get<GemmPlan>(step.method), arrays.scratch));
  }

  static void run_step(const KhatriRaoStep& step, const Arrays& arrays) {
    const auto operand = [&](std::size_t i) { return arrays.source(step.operands[i]); };
    KhatriRao<T>(step.plan, operand, arrays.target(step.result), arrays.scratch)
        .run(arrays.alpha_of(step.result), arrays.beta_of(step.result));
  }

  PlannedEinsum einsum_;
  Workspace workspace_;
};

/// The type in which elements are multiplied: sums of products of signed and of unsigned integers have the same bits,
/// as both are modulo a power of two.
template <class T>
auto factor_type() {
  if constexpr (std::is_integral_v<T>)
    return std::make_unsigned_t<T>();
  else
    return T();
}

}  // namespace

std::unique_ptr<Contraction> make_contraction(const std::string& element_type, const std::string& expression,
                                              Path path) {
  return visit_element_type(find_element_type(element_type), [&](auto element) -> std::unique_ptr<Contraction> {
    using T = decltype(factor_type<decltype(element)>());
    if constexpr (std::is_same_v<T, Boolean>)
      throw Error(text("cannot contract elements of type ", element_type));
    else
      return std::make_unique<TypedContraction<T>>(expression, std::move(path));
  });
}

void limit_blas_threads() {
  if (threads_are_chosen()) return;
#if defined(DACE_REDIST_MKL)
  MKL_Set_Num_Threads(1);
#elif defined(OPENBLAS_VERSION)
  DACE_REDIST_BLAS(openblas_set_num_threads)(1);
#endif
}

}  // namespace dace_redist
