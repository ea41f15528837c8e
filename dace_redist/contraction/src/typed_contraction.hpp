// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Execution of plans for one element type. Start reading at: TypedContraction.

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "executor.hpp"
#include "khatri_rao.hpp"
#include "matrix.hpp"
#include "plan.hpp"

namespace dace_redist::contraction {

/// One run of a GemmPlan that was not made for batches: loops over tiles, copies, calls of BLAS.
template <class T>
class Gemm {
 public:
  /// \param scratch  [plan.scratch_count], aligned to 64 bytes.
  Gemm(const GemmPlan& plan, T* scratch) : plan_(plan), at_(plan.dimensions) {
    for (const Operand tensor : {A, B, C}) buffers_[tensor].data = scratch + plan.buffer_at[tensor];
  }

  /// `c = alpha * sum(a * b) + beta * c`.
  void run(T alpha, const T* a, const T* b, T beta, T* c) {
    do {
      const Index m = plan_.size(Rows, at_), n = plan_.size(Columns, at_), k = plan_.size(Sums, at_);
      const Matrix<const T> left = input(A, a), right = input(B, b);
      const bool first = is_at_end_of_sum(false), copied = plan_.copied[C];
      const Matrix<T> target = matrix(C, copied ? buffers_[C].data : c + at_.offset(C));
      multiply_matrices<T>(m, n, k, alpha, left, right, !first ? T(1) : copied ? T(0) : beta, target);
      if (copied && is_at_end_of_sum(true)) put_back(beta, c + at_.offset(C));
    } while (at_.advance());
  }

 private:
  /// A tensor's buffer and the tile in it.
  struct Buffer {
    T* data;
    const T* tile = nullptr;
    std::array<Index, library::Box::max_dims> counts{};
  };

  /// Whether the tile holds the first or the last terms of its sums.
  bool is_at_end_of_sum(bool last) const {
    for (std::size_t d = 0; d < plan_.dimensions.size(); ++d) {
      if (plan_.dimensions[d].holders != holders_of[Sums]) continue;
      if (last ? at_.first(d) + at_.extent(d) < plan_.dimensions[d].extent : at_.first(d) > 0) return false;
    }
    return true;
  }

  template <class E>
  Matrix<E> matrix(Operand tensor, E* data) const {
    const auto [row_stride, column_stride] = plan_.strides(tensor, at_);
    return {data, row_stride, column_stride};
  }

  /// The matrix of an input's tile, which is copied unless it is in the buffer.
  Matrix<const T> input(Operand tensor, const T* data) {
    const T* const tile = data + at_.offset(tensor);
    if (!plan_.copied[tensor]) return matrix(tensor, tile);
    const library::Box box = plan_.block(tensor, at_);
    Buffer& buffer = buffers_[tensor];
    if (buffer.tile != tile || buffer.counts != box.counts) library::copy(box, sizeof(T), tile, buffer.data);
    buffer.tile = tile;
    buffer.counts = box.counts;
    return matrix<const T>(tensor, buffer.data);
  }

  void put_back(T beta, T* c) const {
    library::Box box = plan_.block(C, at_);
    std::swap(box.source_strides, box.target_strides);
    if (beta == T(0)) return library::copy(box, sizeof(T), buffers_[C].data, c);
    Dimensions dimensions;
    for (std::size_t d = 0; d < static_cast<std::size_t>(box.ndim); ++d)
      dimensions.push_back({box.counts[d], {box.source_strides[d], 0, box.target_strides[d]}, 1u << A | 1u << C});
    const T one(1);
    LoopNest(std::move(dimensions)).run(one, static_cast<const T*>(buffers_[C].data), &one, beta, c);
  }

  const GemmPlan& plan_;
  TileWalk<> at_;
  std::array<Buffer, 3> buffers_{};
};

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

template <class T>
std::unique_ptr<Contraction> make_typed_contraction(const std::string& expression, Path path) {
  return std::make_unique<TypedContraction<T>>(expression, std::move(path));
}

}  // namespace dace_redist::contraction
