// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The text of an einsum, and the tensors that it names.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "contraction/dimension.hpp"
#include "core/error.hpp"

namespace dace_redist {

/// `ijk,ja,ka->ia`, taken apart.
struct Einsum {
  std::vector<std::string> operands;  ///< indices of each, one letter per dimension
  std::string result;

  /// \throws Error unless it has an arrow and every index of the result stands in an operand, and once in the result.
  explicit Einsum(const std::string& expression) {
    const std::size_t arrow = expression.find("->");
    if (arrow == std::string::npos) throw Error(text("einsum \"", expression, "\" needs an arrow, as in ij,jk->ik"));
    result = expression.substr(arrow + 2);
    const std::string all = expression.substr(0, arrow);
    std::size_t begin = 0, end = all.find(',');
    for (; end != std::string::npos; begin = end + 1, end = all.find(',', begin))
      operands.push_back(all.substr(begin, end - begin));
    operands.push_back(all.substr(begin));
    for (const char index : result)
      if (all.find(index) == std::string::npos || std::count(result.begin(), result.end(), index) != 1)
        throw Error(text("einsum \"", expression, "\": index ", index,
                         " of the result must stand in an operand, and once in the result"));
  }
};

/// Extents and strides of a tensor whose dimensions carry different indices.
struct Layout {
  std::string indices;
  std::vector<Index> extents, strides;  ///< [indices], elements

  std::size_t position(char index) const { return indices.find(index); }
  bool has(char index) const { return position(index) != std::string::npos; }

  /// Adds a dimension; one whose index is there already makes it a diagonal.
  void add(char index, Index extent, Index stride) {
    if (has(index)) {
      strides[position(index)] += stride;
      return;
    }
    indices += index;
    extents.push_back(extent);
    strides.push_back(stride);
  }

  Index count() const {
    Index product = 1;
    for (const Index extent : extents) product *= extent;
    return product;
  }
};

/// A new array in C order.
inline Layout contiguous_layout(const std::string& indices, const std::vector<Index>& extents) {
  Layout layout{indices, extents, std::vector<Index>(extents.size())};
  Index stride = 1;
  for (std::size_t d = extents.size(); d-- > 0; stride *= extents[d]) layout.strides[d] = stride;
  return layout;
}

/// Positions of the tensors that a step takes from the list of those left; its result joins the end of the list.
using Path = std::vector<std::vector<std::size_t>>;

/// A path without steps at its end that take what is the result already. \param path  Empty: all tensors in one step.
/// \throws Error if it does not end with one tensor.
inline Path complete_path(const std::string& expression, const Einsum& einsum, Path path) {
  std::size_t left = einsum.operands.size();
  if (path.empty()) {
    path.emplace_back();
    for (std::size_t i = 0; i < left; ++i) path.back().push_back(i);
  }
  for (const auto& step : path) {
    std::vector<std::size_t> sorted = step;
    std::sort(sorted.begin(), sorted.end());
    const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (step.empty() || sorted.back() >= left || !distinct)
      throw Error(text("einsum \"", expression, "\": the path takes tensors ", tuple_text(step), " of ", left));
    left -= step.size() - 1;
  }
  while (path.size() > 1 && path.back().size() == 1) path.pop_back();
  if (left != 1) throw Error(text("einsum \"", expression, "\": the path ends with ", left, " tensors, not one"));
  return path;
}

/// Extents and strides of all tensors of an einsum.
struct TensorLayouts {
  std::vector<Layout> operands;
  Layout result;

  bool has_empty_operand() const {
    return std::any_of(operands.begin(), operands.end(), [](const Layout& layout) { return layout.count() == 0; });
  }
};

/// \param words  For each operand, then for the result: extents, then strides in elements.
/// \throws Error if they are not as many as the expression needs, or extents of an index differ.
inline TensorLayouts read_layouts(const std::string& expression, const Einsum& einsum,
                                  const std::vector<Index>& words) {
  Layout known;  // every index, with its extent
  std::size_t at = 0;
  const auto read = [&](const std::string& indices) {
    const std::size_t ndim = indices.size();
    if (at + 2 * ndim > words.size())
      throw Error(text("einsum \"", expression, "\": too few extents and strides, got ", words.size()));
    Layout layout;
    for (std::size_t d = 0; d < ndim; ++d) {
      const char index = indices[d];
      const Index extent = words[at + d];
      if (extent < 0 || (known.has(index) && known.extents[known.position(index)] != extent))
        throw Error(text("einsum \"", expression, "\": extent ", extent, " of index ", index, " differs from another"));
      known.add(index, extent, 0);
      layout.add(index, extent, words[at + ndim + d]);
    }
    at += 2 * ndim;
    return layout;
  };
  TensorLayouts all;
  for (const std::string& indices : einsum.operands) all.operands.push_back(read(indices));
  all.result = read(einsum.result);
  if (at != words.size())
    throw Error(text("einsum \"", expression, "\" needs ", at, " extents and strides, got ", words.size()));
  return all;
}

/// The dimensions of `c = sum(a * b)`; what only an operand has is summed.
inline Dimensions dimensions_of(const Layout& a, const Layout& b, const Layout& c) {
  Dimensions dimensions;
  const Layout* const tensors[] = {&a, &b, &c};
  std::string seen;
  for (const Layout* tensor : tensors)
    for (const char index : tensor->indices) {
      if (seen.find(index) != std::string::npos) continue;
      seen += index;
      Dimension dimension;
      for (const Operand t : {A, B, C}) {
        if (!tensors[t]->has(index)) continue;
        const std::size_t d = tensors[t]->position(index);
        dimension.extent = tensors[t]->extents[d];
        dimension.strides[t] = tensors[t]->strides[d];
        dimension.holders |= 1u << t;
      }
      dimensions.push_back(dimension);
    }
  return dimensions;
}

/// Which operand is the tensor in a tensor times a Khatri-Rao product (MTTKRP), such as `ijk,ja,ka->ia`: the others are
/// a matrix for each of its summed indices, and share one index of the result. None if the einsum is something else.
inline std::optional<std::size_t> find_khatri_rao_tensor(const std::vector<Layout>& operands, const Layout& result) {
  if (operands.size() < 3) return {};
  std::size_t tensor = 0;
  for (std::size_t i = 1; i < operands.size(); ++i)
    if (operands[i].indices.size() > operands[tensor].indices.size()) tensor = i;
  const Layout& x = operands[tensor];
  std::string summed, common;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (i == tensor) continue;
    if (operands[i].indices.size() != 2) return {};
    for (const char index : operands[i].indices) (x.has(index) ? summed : common) += index;
  }
  const std::size_t factors = operands.size() - 1;
  const bool one_common = common.size() == factors && common.find_first_not_of(common.front()) == std::string::npos;
  if (!one_common || summed.size() != factors || !result.has(common.front())) return {};
  if (result.indices.size() + factors != x.indices.size() + 1) return {};
  for (const char index : x.indices)
    if (std::count(summed.begin(), summed.end(), index) != (result.has(index) ? 0 : 1)) return {};
  return tensor;
}

/// Whether an einsum is computed as a tensor times a Khatri-Rao product, all operands at once.
inline bool is_khatri_rao_product(const std::string& expression) {
  const Einsum einsum(expression);
  std::vector<Layout> tensors;
  for (const std::string& indices : einsum.operands) {
    tensors.emplace_back();
    for (const char index : indices) tensors.back().add(index, 1, 1);
  }
  return find_khatri_rao_tensor(tensors, Layout{einsum.result, {}, {}}).has_value();
}

}  // namespace dace_redist
