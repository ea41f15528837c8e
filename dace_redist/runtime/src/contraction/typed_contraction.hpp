// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The contractions of an element type: executes the steps of a ContractionPlan on the CPU. Those of integers are
/// loops.

#include <complex>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "contraction/contraction.hpp"
#include "contraction/gemm.hpp"
#include "contraction/khatri_rao.hpp"
#include "contraction/plan.hpp"
#include "contraction/resources.hpp"

namespace dace_redist {

template <class T>
class TypedContraction final : public Contraction {
 public:
  TypedContraction(const std::string& expression, Path path)
      : einsum_(expression), path_(complete_path(einsum_, std::move(path))) {}

  void run(const std::vector<Index>& layouts, const std::vector<const void*>& operands, void* result, const void* alpha,
           const void* beta) override {
    if (!planned_ || layouts != layouts_) make_plan(layouts);
    T* const kept = static_cast<T*>(workspace_.reserve(static_cast<std::size_t>(workspace_nbytes())));
    const Arrays arrays{operands,
                        static_cast<T*>(result),
                        kept,
                        kept + plan_.kept_count,
                        plan_.is_empty_sum ? T(0) : *static_cast<const T*>(alpha),
                        *static_cast<const T*>(beta)};
    for (const auto& step : plan_.steps) std::visit([&](const auto& kind) { run_step(kind, arrays); }, step);
  }

  Index workspace_nbytes() const override {
    return (plan_.kept_count + plan_.scratch_count) * static_cast<Index>(sizeof(T));
  }

 private:
  /// Memory and factors of a run.
  struct Arrays {
    const std::vector<const void*>& operands;
    T *result, *kept, *scratch;
    T alpha, beta;

    const T* source(const TensorPlace& place) const {
      static const T one(1);
      if (place.kind == TensorPlace::ones) return &one;
      return place.kind == TensorPlace::kept ? kept + place.at
                                             : static_cast<const T*>(operands[static_cast<std::size_t>(place.at)]);
    }
    T* target(const TensorPlace& place) const { return is_last(place) ? result : kept + place.at; }
    T alpha_of(const TensorPlace& place) const { return is_last(place) ? alpha : T(1); }
    T beta_of(const TensorPlace& place) const { return is_last(place) ? beta : T(0); }

    static bool is_last(const TensorPlace& place) { return place.kind == TensorPlace::result; }
  };

  void make_plan(const std::vector<Index>& layouts) {
    planned_ = false;
    plan_ = plan_contraction(read_layouts(einsum_, layouts), path_, executor_of<T>);
    layouts_ = layouts;
    planned_ = true;
  }

  static void run_step(const PairStep& step, const Arrays& arrays) {
    const auto& [a, b, c] = step.places;
    const T alpha = arrays.alpha_of(c), beta = arrays.beta_of(c);
    if (const auto* loops = std::get_if<LoopNest>(&step.method))
      loops->run(alpha, arrays.source(a), arrays.source(b), beta, arrays.target(c));
    else if constexpr (executor_of<T>.has_blas)
      Gemm<T>(std::get<GemmPlan>(step.method), arrays.scratch)
          .run(alpha, arrays.source(a), arrays.source(b), beta, arrays.target(c));
  }

  static void run_step(const KhatriRaoStep& step, const Arrays& arrays) {
    const auto operand = [&](std::size_t i) { return arrays.source(step.operands[i]); };
    KhatriRao<T>(step.plan, operand, arrays.target(step.result), arrays.scratch)
        .run(arrays.alpha_of(step.result), arrays.beta_of(step.result));
  }

  Einsum einsum_;
  Path path_;
  bool planned_ = false;
  std::vector<Index> layouts_;  // those of the plan
  ContractionPlan plan_;
  Workspace workspace_;
};

template <class T>
std::unique_ptr<Contraction> make_typed_contraction(const std::string& expression, Path path) {
  return std::make_unique<TypedContraction<T>>(expression, std::move(path));
}

}  // namespace dace_redist
