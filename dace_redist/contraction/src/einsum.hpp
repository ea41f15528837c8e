// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The text of an einsum, its tensors, and the dimensions of a product of two of them.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "layout/intervals.hpp"

namespace dace_redist {

/// `ijk,ja,ka->ia`, parsed.
struct Einsum {
  std::string expression;
  std::vector<std::string> operands;  ///< indices of each, one letter per dimension
  std::string result;

  /// \throws Error unless the text has an arrow, and each index of the result occurs once and in an operand.
  explicit Einsum(const std::string& text);
};

/// Extents and strides of a tensor whose dimensions carry different indices.
struct Layout {
  std::string indices;
  std::vector<Index> extents, strides;  ///< [indices], elements

  std::size_t position(char index) const { return indices.find(index); }
  bool has(char index) const { return position(index) != std::string::npos; }
  Index extent(char index) const { return extents[position(index)]; }
  Index stride(char index) const { return strides[position(index)]; }

  /// Adds a dimension; a second one of an index makes it a diagonal.
  void add(char index, Index extent, Index stride);

  /// Number of elements.
  Index count() const;
};

/// Positions of the tensors that a step takes from the list of those left; its result is appended to the list.
using Path = std::vector<std::vector<std::size_t>>;

/// The path without steps at its end that only pass on the result. \param path  Empty: all tensors in one step.
/// \throws Error if it does not end with one tensor.
Path complete_path(const Einsum& einsum, Path path);

/// Extents and strides of the operands of an einsum, then of its result.
/// \param words  For each operand, then for the result: extents, then strides in elements.
/// \throws Error if their number does not fit the expression, or extents of an index differ.
std::vector<Layout> read_layouts(const Einsum& einsum, const std::vector<Index>& words);

/// Position of the tensor in a tensor times a Khatri-Rao product (MTTKRP), such as `ijk,ja,ka->ia`: the others are a
/// matrix for each of its summed indices, and share one index of the result. None if the einsum is something else.
std::optional<std::size_t> find_khatri_rao_tensor(const std::vector<Layout>& operands, const Layout& result);

/// Whether an einsum is computed as a tensor times a Khatri-Rao product, all operands at once.
bool is_khatri_rao_product(const std::string& expression);

/// The tensors of `c = alpha * sum(a * b) + beta * c`.
enum Operand : std::size_t { A = 0, B = 1, C = 2 };

/// An index of such a product, or several merged ones.
struct Dimension {
  Index extent = 1;
  std::array<Index, 3> strides{};  ///< by Operand, elements; 0 in a tensor without the index
  unsigned holders = 0;            ///< bit t: tensor t has the index
  Index tile = 1;                  ///< extent of the tiles of a walk, see TileWalk; smaller at the end

  bool in(Operand tensor) const { return (holders >> tensor & 1u) != 0; }
};

using Dimensions = std::vector<Dimension>;

/// The dimensions of `c = sum(a * b)`; an index of only one operand is summed.
Dimensions dimensions_of(const Layout& a, const Layout& b, const Layout& c);

/// Whether `outer` and `inner` are one dimension in a tensor, which may lack both.
inline bool adjoin(const Dimension& outer, const Dimension& inner, Operand tensor) {
  return outer.strides[tensor] == inner.strides[tensor] * inner.extent;
}

/// Drops dimensions of extent 1 and merges those that adjoin in every tensor that holds them.
void merge_dimensions(Dimensions& dimensions);

}  // namespace dace_redist
