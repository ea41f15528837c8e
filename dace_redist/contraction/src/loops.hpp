// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Products of two tensors by loops over vectors: reductions, transpositions, scaling, products of integers. The
/// innermost loops, over vectors of elements, and over rows of a Khatri-Rao product, are written so that compilers
/// vectorise them. Start reading at: LoopNest.

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "einsum.hpp"

namespace dace_redist::contraction {

namespace detail {

template <class T>
T multiply(T a, T b) {
  return static_cast<T>(a * b);
}

/// Without the search for infinities that C++ prescribes, which would cost a call.
template <class R>
std::complex<R> multiply(std::complex<R> a, std::complex<R> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// A factor of a sum times a number. A factor of 1 keeps infinities, of which a product of complex numbers makes NaN.
template <class T>
T scaled(T factor, T number) {
  if constexpr (!std::is_arithmetic_v<T>)
    if (factor == T(1)) return number;
  return multiply(factor, number);
}

/// `y = beta * y`; 0 does not read y.
template <class T>
void scale_vector(Index n, T beta, T* y, Index stride) {
  if (beta == T(1)) return;
  if (beta == T(0))
    for (Index i = 0; i < n; ++i) y[i * stride] = T(0);
  else
    for (Index i = 0; i < n; ++i) y[i * stride] = multiply(beta, y[i * stride]);
}

/// `y += alpha * x`, or with `Assign` `y = alpha * x`.
template <bool Assign, class T>
void multiply_add(Index n, T alpha, const T* __restrict x, Index x_stride, T* __restrict y, Index y_stride) {
  const auto term = [alpha](T x_i, T y_i) {
    return Assign ? scaled(alpha, x_i) : static_cast<T>(y_i + scaled(alpha, x_i));
  };
  if (x_stride == 1 && y_stride == 1)
    for (Index i = 0; i < n; ++i) y[i] = term(x[i], Assign ? T(0) : y[i]);
  else
    for (Index i = 0; i < n; ++i) y[i * y_stride] = term(x[i * x_stride], Assign ? T(0) : y[i * y_stride]);
}

/// `z += alpha * x * y` element by element, or with `Assign` `z = alpha * x * y`.
template <bool Assign, class T>
void multiply_add(Index n, T alpha, const T* __restrict x, Index x_stride, const T* __restrict y, Index y_stride,
                  T* __restrict z, Index z_stride) {
  const auto term = [alpha](T x_i, T y_i, T z_i) {
    const T product = scaled(alpha, multiply(x_i, y_i));
    return Assign ? product : static_cast<T>(z_i + product);
  };
  if (x_stride == 1 && y_stride == 1 && z_stride == 1)
    for (Index i = 0; i < n; ++i) z[i] = term(x[i], y[i], Assign ? T(0) : z[i]);
  else
    for (Index i = 0; i < n; ++i)
      z[i * z_stride] = term(x[i * x_stride], y[i * y_stride], Assign ? T(0) : z[i * z_stride]);
}

/// A sum of numbers, which are added in pairs, pairs of pairs, and so on.
template <class T>
class PairwiseSum {
 public:
  void add(T number) {
    std::size_t level = 0;
    for (; (count_ >> level & 1u) != 0; ++level) number = static_cast<T>(sums_[level] + number);
    sums_[level] = number;
    ++count_;
  }

  /// Returns the sum and begins another one.
  T take() {
    T sum(0);
    for (std::size_t level = 0; count_ != 0; ++level, count_ >>= 1)
      if ((count_ & 1u) != 0) sum = static_cast<T>(sum + sums_[level]);
    return sum;
  }

 private:
  std::size_t count_ = 0;
  std::array<T, 48> sums_;  // [level], of 2^level numbers if the count has this bit
};

/// The type of the one or two real numbers that a number consists of.
template <class T>
T part_of(T number);
template <class R>
R part_of(std::complex<R> number);

/// Sum of `term(first)` to `term(end - 1)`: halves, and sums of blocks that are sums of 16 terms each, as an error
/// grows with the terms that follow each other. In several partial sums: the compiler may not reorder one.
template <class T, class Term>
T sum_of_terms(Index first, Index end, const Term& term) {
  using Part = decltype(part_of(T()));
  constexpr Index lanes = 8, block = 16 * lanes, most = 16 * block, parts = sizeof(T) / sizeof(Part);
  if (end - first > most) {
    const Index middle = first + ceil_div(end - first, 2 * most) * most;
    const T left = sum_of_terms<T>(first, middle, term);
    return static_cast<T>(left + sum_of_terms<T>(middle, end, term));
  }
  const auto add_lanes = [&](Part* sums) {
    for (Index lane = 0; lane < lanes; ++lane) {
      const T number = term(first + lane);
      if constexpr (parts == 1) {
        sums[lane] = static_cast<T>(sums[lane] + number);
      } else {
        sums[2 * lane] += number.real();
        sums[2 * lane + 1] += number.imag();
      }
    }
    first += lanes;
  };
  Part sums[lanes * parts] = {};
  for (Index count = (end - first) % block; count >= lanes; count -= lanes) add_lanes(sums);
  while (end - first >= block) {
    Part of_block[lanes * parts] = {};
    for (Index count = 0; count < block; count += lanes) add_lanes(of_block);
    for (Index i = 0; i < lanes * parts; ++i) sums[i] = static_cast<Part>(sums[i] + of_block[i]);
  }
  T rest(0);
  for (; first < end; ++first) rest = static_cast<T>(rest + term(first));
#pragma GCC unroll 3
  for (Index half = lanes / 2 * parts; half >= parts; half /= 2)
    for (Index i = 0; i < half; ++i) sums[i] = static_cast<Part>(sums[i] + sums[i + half]);
  T sum;
  std::copy(sums, sums + parts, reinterpret_cast<Part*>(&sum));
  return static_cast<T>(sum + rest);
}

template <class T>
T sum_vector(Index n, const T* x, Index stride) {
  if (stride == 1) return sum_of_terms<T>(0, n, [x](Index i) { return x[i]; });
  return sum_of_terms<T>(0, n, [x, stride](Index i) { return x[i * stride]; });
}

template <class T>
T dot_vectors(Index n, const T* x, Index x_stride, const T* y, Index y_stride) {
  if (x_stride == 1 && y_stride == 1) return sum_of_terms<T>(0, n, [x, y](Index i) { return multiply(x[i], y[i]); });
  return sum_of_terms<T>(0, n, [=](Index i) { return multiply(x[i * x_stride], y[i * y_stride]); });
}

/// Calls `work(first, count)` for the cache lines of a row; the count of whole ones is known to the compiler, which
/// then keeps sums in registers.
template <class T, class Work>
void for_chunks(Index size, const Work& work) {
  constexpr Index chunk = 64 / static_cast<Index>(sizeof(T));
  Index first = 0;
  for (; first + chunk <= size; first += chunk) work(first, std::integral_constant<Index, chunk>{});
  if (first < size) work(first, size - first);
}

/// `y[row] += x[row] * weights` for rows of `size` elements.
template <class T>
void add_weighted_rows(Index rows, Index size, const T* x, Index x_stride, const T* weights, T* y, Index y_stride) {
  for_chunks<T>(size, [&](Index first, auto count) {
    for (Index row = 0; row < rows; ++row) {
      const T* __restrict x_row = x + row * x_stride + first;
      T* __restrict y_row = y + row * y_stride + first;
      for (Index i = 0; i < count; ++i) y_row[i] = static_cast<T>(y_row[i] + multiply(x_row[i], weights[first + i]));
    }
  });
}

/// `z += weights * sum(x[row] * y[row])` over rows of `size` elements.
template <class T>
void add_weighted_sum(Index rows, Index size, const T* x, Index x_stride, const T* y, Index y_stride, const T* weights,
                      T* z) {
  for_chunks<T>(size, [&](Index first, auto count) {
    T sums[64 / sizeof(T)] = {};
    for (Index row = 0; row < rows; ++row) {
      const T *x_row = x + row * x_stride + first, *y_row = y + row * y_stride + first;
      for (Index i = 0; i < count; ++i) sums[i] = static_cast<T>(sums[i] + multiply(x_row[i], y_row[i]));
    }
    multiply_add<false>(count, T(1), sums, 1, weights + first, 1, z + first, 1);
  });
}

}  // namespace detail

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
    if (!sums && beta == T(0)) return add_products<true>(alpha, a, b, c);
    scale(beta, c);
    if (sums && dimensions_.back().strides[C] == 0) return add_sums(alpha, a, b, c);
    if (sums && adds_rows<T>()) return add_rows(alpha, a, b, c);
    add_products<false>(alpha, a, b, c);
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

  /// Calls `work(outer, inner, a, b, c)` for the two innermost dimensions of each tile.
  template <class T, class Work>
  void for_tiles(const T* a, const T* b, T* c, const Work& work) const {
    const std::size_t ndim = dimensions_.size();
    Dimension inner = ndim > 0 ? dimensions_[ndim - 1] : Dimension{};
    Dimension outer = ndim > 1 ? dimensions_[ndim - 2] : Dimension{};
    TileWalk at(dimensions_);
    do {
      if (ndim > 1) outer.extent = at.extent(ndim - 2);
      if (ndim > 0) inner.extent = at.extent(ndim - 1);
      work(outer, inner, a + at.offset(A), b + at.offset(B), c + at.offset(C));
    } while (at.advance());
  }

  /// Calls `work(inner, a, b, c)` for the innermost dimension of each tile's rows.
  template <class T, class Work>
  void for_rows(const T* a, const T* b, T* c, const Work& work) const {
    for_tiles(a, b, c, [&](const Dimension& outer, const Dimension& inner, const T* x, const T* y, T* z) {
      for (Index row = 0; row < outer.extent; ++row)
        work(inner, x + row * outer.strides[A], y + row * outer.strides[B], z + row * outer.strides[C]);
    });
  }

  template <class T>
  void add_sums(T alpha, const T* a, const T* b, T* c) const {
    detail::PairwiseSum<T> sum;  // of successive rows with the same target
    const auto put = [&] { *c = static_cast<T>(*c + detail::scaled(alpha, sum.take())); };
    for_rows(a, b, c, [&](const Dimension& row, const T* x, const T* y, T* target) {
      if (target != c) put();
      c = target;
      const auto [x_stride, y_stride, none] = row.strides;
      sum.add(y_stride == 0   ? detail::scaled(*y, detail::sum_vector(row.extent, x, x_stride))
              : x_stride == 0 ? detail::scaled(*x, detail::sum_vector(row.extent, y, y_stride))
                              : detail::dot_vectors(row.extent, x, x_stride, y, y_stride));
    });
    put();
  }

  template <bool Assign, class T>
  void add_products(T alpha, const T* a, const T* b, T* c) const {
    for_rows(a, b, c, [alpha](const Dimension& row, const T* x, const T* y, T* z) {
      add_row<Assign>(alpha, row, x, y, z, row.strides[C]);
    });
  }

  template <class T>
  static constexpr Index max_block = 4096 / static_cast<Index>(sizeof(T));
  static constexpr Index block_rows = 16;

  /// Whether many rows are added to one target, in several dimensions or one.
  template <class T>
  bool adds_rows() const {
    const Dimension& rows = dimensions_[dimensions_.size() - 2];
    return rows.strides[C] == 0 && (rows.extent > block_rows || dimensions_.size() > kept_.size() + 1) &&
           dimensions_.back().tile <= max_block<T>;
  }

  /// Adds up to 16 successive rows with the same target to a block first, as in sum_of_terms().
  template <class T>
  void add_rows(T alpha, const T* a, const T* b, T* c) const {
    T block[max_block<T>];
    Index added = 0;  // rows in the block, whose target is c
    Dimension kept = dimensions_.back();
    const auto put = [&] { detail::multiply_add<false>(kept.extent, T(1), block, 1, c, kept.strides[C]); };
    for_tiles(a, b, c, [&](const Dimension& outer, const Dimension& inner, const T* x, const T* y, T* z) {
      for (Index row = 0; row < outer.extent;) {
        if (added == block_rows || z != c || inner.extent != kept.extent) {
          if (added > 0) put();
          added = 0;
          c = z;
          kept.extent = inner.extent;
        }
        const auto add = [&](auto assigns) {
          add_row<assigns.value>(alpha, kept, x + row * outer.strides[A], y + row * outer.strides[B], block, 1);
          ++row;
        };
        const Index end = std::min(outer.extent, row + block_rows - added);
        const bool begins = added == 0;
        added += end - row;
        if (begins) add(std::true_type());
        while (row < end) add(std::false_type());
      }
    });
    put();
  }

  template <bool Assign, class T>
  static void add_row(T alpha, const Dimension& row, const T* x, const T* y, T* z, Index z_stride) {
    const auto [x_stride, y_stride, none] = row.strides;
    if (y_stride == 0)
      detail::multiply_add<Assign>(row.extent, detail::scaled(alpha, *y), x, x_stride, z, z_stride);
    else if (x_stride == 0)
      detail::multiply_add<Assign>(row.extent, detail::scaled(alpha, *x), y, y_stride, z, z_stride);
    else
      detail::multiply_add<Assign>(row.extent, alpha, x, x_stride, y, y_stride, z, z_stride);
  }

  Dimensions dimensions_;  // outermost first
  Dimensions kept_;        // those of c, outermost first, for scaling it
};

}  // namespace dace_redist::contraction
