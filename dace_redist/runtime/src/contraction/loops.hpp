// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Products of two tensors by loops over vectors: what is no product of matrices, reductions, transpositions, scaling.

#include <algorithm>
#include <array>
#include <cstddef>

#include "contraction/tile_walk.hpp"
#include "contraction/vector_loops.hpp"

namespace dace_redist {

namespace detail {

inline constexpr Index transposed_tile = 32;  ///< of both dimensions where two tensors are read across each other

inline Index magnitude_of(Index stride) { return stride < 0 ? -stride : stride; }

/// Lines of cache that a step in a dimension touches, roughly, times 8; a sum is not written at each step.
inline Index step_cost(const Dimension& dimension) {
  Index cost = 0;
  for (const Index stride : dimension.strides) cost += stride == 0 ? 0 : std::min<Index>(8, magnitude_of(stride));
  return dimension.extent < 8 ? cost + 8 : cost;
}

inline Index longest_stride(const Dimension& dimension) {
  Index longest = 0;
  for (const Index stride : dimension.strides) longest = std::max(longest, magnitude_of(stride));
  return longest;
}

}  // namespace detail

/// Loops for `c = alpha * sum(a * b) + beta * c`: an order of the dimensions and tiles of the two innermost ones.
///
/// A tensor without a dimension has stride 0 there; no extent is 0.
class LoopNest {
 public:
  LoopNest() = default;
  explicit LoopNest(Dimensions dimensions) : dimensions_(std::move(dimensions)) {
    std::stable_sort(dimensions_.begin(), dimensions_.end(), [](const Dimension& x, const Dimension& y) {
      return detail::longest_stride(x) > detail::longest_stride(y);
    });
    const auto by_cost = [](const Dimension& x, const Dimension& y) {
      return detail::step_cost(x) < detail::step_cost(y);
    };
    move_to_end(std::min_element(dimensions_.rbegin(), dimensions_.rend(), by_cost));
    choose_tiles();
    for (const Dimension& dimension : dimensions_) sums_ = sums_ || dimension.strides[C] == 0;
    for (const Dimension& dimension : dimensions_)
      if (dimension.strides[C] != 0) {
        kept_.push_back({dimension.extent, {0, 0, dimension.strides[C]}, 4});
        kept_tiles_.push_back(1);
      }
    if (!kept_.empty()) kept_tiles_.back() = kept_.back().extent;
  }

  const Dimensions& dimensions() const { return dimensions_; }

  template <class T>
  void run(T alpha, const T* a, const T* b, T beta, T* c) const {
    if (!sums_ && beta == T(0)) return walk<true>(alpha, a, b, c);
    scale(beta, c);
    walk<false>(alpha, a, b, c);
  }

  /// `c = beta * c`.
  template <class T>
  void scale(T beta, T* c) const {
    if (beta == T(1)) return;
    TileWalk at(kept_, kept_tiles_);
    const Dimension inner = kept_.empty() ? Dimension{} : kept_.back();
    do detail::scale_vector(inner.extent, beta, c + at.offset(C), inner.strides[C]);
    while (at.advance());
  }

 private:
  void move_to_end(Dimensions::reverse_iterator at) {
    if (at != dimensions_.rend()) std::rotate(at.base() - 1, at.base(), dimensions_.end());
  }

  /// Tiles where another dimension than the innermost one is contiguous in some tensor.
  void choose_tiles() {
    tiles_.assign(dimensions_.size(), 1);
    if (dimensions_.empty()) return;
    tiles_.back() = dimensions_.back().extent;
    const auto across = [](const Dimension& dimension) {
      return std::count(dimension.strides.begin(), dimension.strides.end(), 1) > 0;
    };
    const auto last = dimensions_.end() - 1;
    const auto found = std::find_if(dimensions_.begin(), last, across);
    if (found != last) {
      std::rotate(found, found + 1, last);
      tiles_[tiles_.size() - 2] = detail::transposed_tile;
      tiles_.back() = std::min(tiles_.back(), 8 * detail::transposed_tile);
    } else if (dimensions_.size() > 1) {
      tiles_[tiles_.size() - 2] = (last - 1)->extent;
    }
  }

  template <bool Assign, class T>
  void walk(T alpha, const T* a, const T* b, T* c) const {
    const std::size_t ndim = dimensions_.size();
    const Dimension none;
    const Dimension& inner = ndim > 0 ? dimensions_[ndim - 1] : none;
    const Dimension& outer = ndim > 1 ? dimensions_[ndim - 2] : none;
    TileWalk at(dimensions_, tiles_);
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
    using detail::multiply;
    if (c_stride == 0) {
      const T sum = b_stride == 0   ? multiply(*b, detail::sum_vector(n, a, a_stride))
                    : a_stride == 0 ? multiply(*a, detail::sum_vector(n, b, b_stride))
                                    : detail::dot_vectors(n, a, a_stride, b, b_stride);
      *c = Assign ? multiply(alpha, sum) : static_cast<T>(*c + multiply(alpha, sum));
    } else if (b_stride == 0) {
      detail::multiply_add<Assign>(n, multiply(alpha, *b), a, a_stride, c, c_stride);
    } else if (a_stride == 0) {
      detail::multiply_add<Assign>(n, multiply(alpha, *a), b, b_stride, c, c_stride);
    } else {
      detail::multiply_add<Assign>(n, alpha, a, a_stride, b, b_stride, c, c_stride);
    }
  }

  Dimensions dimensions_;     // outermost first
  std::vector<Index> tiles_;  // [dimensions_]
  Dimensions kept_;           // those of c, outermost first, for scaling it
  std::vector<Index> kept_tiles_;
  bool sums_ = false;
};

}  // namespace dace_redist
