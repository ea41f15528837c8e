// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Products of two tensors by loops over vectors: reductions, transpositions, scaling, products of integers.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "einsum.hpp"
#include "vector_loops.hpp"

namespace dace_redist {

inline constexpr std::size_t max_dimensions = 24;  ///< of one product, after merging

/// Visits the tiles of some dimensions, the last one fastest; allocates nothing. The dimensions must outlive the walk.
template <class D = Dimension>
class TileWalk {
 public:
  /// \param dimensions  Outermost first, at most max_dimensions, no extent 0.
  explicit TileWalk(const std::vector<D>& dimensions) : dimensions_(dimensions) {}

  /// Elements from the start of a tensor.
  Index offset(Operand tensor) const { return offsets_[tensor]; }

  /// Extent of this tile in one dimension.
  Index extent(std::size_t d) const { return std::min(dimensions_[d].tile, dimensions_[d].extent - first_[d]); }

  /// First index of this tile in one dimension.
  Index first(std::size_t d) const { return first_[d]; }

  /// Goes to the next tile; false after the last one.
  bool advance() {
    for (std::size_t d = dimensions_.size(); d-- > 0;) {
      if (dimensions_[d].tile >= dimensions_[d].extent) continue;
      move(d, dimensions_[d].tile);
      if (first_[d] < dimensions_[d].extent) return true;
      move(d, -first_[d]);
    }
    return false;
  }

 private:
  void move(std::size_t d, Index by) {
    first_[d] += by;
    for (const Operand tensor : {A, B, C}) offsets_[tensor] += by * dimensions_[d].strides[tensor];
  }

  const std::vector<D>& dimensions_;
  std::array<Index, max_dimensions> first_{};  // [dimensions]
  std::array<Index, 3> offsets_{};
};

/// Loops for `c = alpha * sum(a * b) + beta * c`: an order of the dimensions and tiles of the two innermost ones.
///
/// A tensor without a dimension has stride 0 there; no extent is 0.
class LoopNest {
 public:
  LoopNest() = default;
  explicit LoopNest(Dimensions dimensions);

  /// Estimated time in accesses to elements; comparable with that of a GemmPlan.
  double cost() const;

  template <class T>
  void run(T alpha, const T* a, const T* b, T beta, T* c) const {
    const bool sums = kept_.size() < dimensions_.size();
    if (!sums && beta == T(0)) return walk<true>(alpha, a, b, c);
    scale(beta, c);
    walk<false>(alpha, a, b, c);
  }

  /// `c = beta * c`.
  template <class T>
  void scale(T beta, T* c) const {
    if (beta == T(1)) return;
    TileWalk at(kept_);
    const Dimension inner = kept_.empty() ? Dimension{} : kept_.back();
    do detail::scale_vector(inner.extent, beta, c + at.offset(C), inner.strides[C]);
    while (at.advance());
  }

 private:
  void choose_tiles();

  template <bool Assign, class T>
  void walk(T alpha, const T* a, const T* b, T* c) const {
    const std::size_t ndim = dimensions_.size();
    const Dimension none;
    const Dimension& inner = ndim > 0 ? dimensions_[ndim - 1] : none;
    const Dimension& outer = ndim > 1 ? dimensions_[ndim - 2] : none;
    TileWalk at(dimensions_);
    do {
      const Index rows = ndim > 1 ? at.extent(ndim - 2) : 1, count = ndim > 0 ? at.extent(ndim - 1) : 1;
      for (Index row = 0; row < rows; ++row)
        vector<Assign>(count, inner, alpha, a + at.offset(A) + row * outer.strides[A],
                       b + at.offset(B) + row * outer.strides[B], c + at.offset(C) + row * outer.strides[C]);
    } while (at.advance());
  }

  template <bool Assign, class T>
  static void vector(Index n, const Dimension& dimension, T alpha, const T* a, const T* b, T* c) {
    const auto [a_stride, b_stride, c_stride] = dimension.strides;
    using detail::scaled;
    if (c_stride == 0) {
      const T sum = b_stride == 0   ? scaled(*b, detail::sum_vector(n, a, a_stride))
                    : a_stride == 0 ? scaled(*a, detail::sum_vector(n, b, b_stride))
                                    : detail::dot_vectors(n, a, a_stride, b, b_stride);
      *c = Assign ? scaled(alpha, sum) : static_cast<T>(*c + scaled(alpha, sum));
    } else if (b_stride == 0) {
      detail::multiply_add<Assign>(n, scaled(alpha, *b), a, a_stride, c, c_stride);
    } else if (a_stride == 0) {
      detail::multiply_add<Assign>(n, scaled(alpha, *a), b, b_stride, c, c_stride);
    } else {
      detail::multiply_add<Assign>(n, alpha, a, a_stride, b, b_stride, c, c_stride);
    }
  }

  Dimensions dimensions_;  // outermost first
  Dimensions kept_;        // those of c, outermost first, for scaling it
};

}  // namespace dace_redist
