// SPDX-License-Identifier: BSD-3-Clause
#include "einsum.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace dace_redist {

Einsum::Einsum(const std::string& words) : expression(words) {
  const std::size_t arrow = words.find("->");
  if (arrow == std::string::npos) throw Error(text("einsum \"", words, "\" must have an arrow, as in ij,jk->ik"));
  result = words.substr(arrow + 2);
  const std::string all = words.substr(0, arrow);
  std::size_t begin = 0, end = all.find(',');
  for (; end != std::string::npos; begin = end + 1, end = all.find(',', begin))
    operands.push_back(all.substr(begin, end - begin));
  operands.push_back(all.substr(begin));
  for (const char index : result)
    if (all.find(index) == std::string::npos || std::count(result.begin(), result.end(), index) != 1)
      throw Error(text("einsum \"", words, "\": index ", index,
                       " of the result must occur in an operand, and once in the result"));
}

void Layout::add(char index, Index extent, Index stride) {
  if (has(index)) {
    strides[position(index)] += stride;
    return;
  }
  indices += index;
  extents.push_back(extent);
  strides.push_back(stride);
}

Index Layout::count() const {
  Index product = 1;
  for (const Index extent : extents) product *= extent;
  return product;
}

Path complete_path(const Einsum& einsum, Path path) {
  std::size_t tensors = einsum.operands.size();
  if (path.empty()) {
    path.emplace_back();
    for (std::size_t i = 0; i < tensors; ++i) path.back().push_back(i);
  }
  for (const auto& step : path) {
    std::vector<std::size_t> sorted = step;
    std::sort(sorted.begin(), sorted.end());
    const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (step.empty() || sorted.back() >= tensors || !distinct)
      throw Error(
          text("einsum \"", einsum.expression, "\": the path takes tensors ", tuple_text(step), " of ", tensors));
    tensors -= step.size() - 1;
  }
  while (path.size() > 1 && path.back().size() == 1) path.pop_back();
  if (tensors != 1)
    throw Error(text("einsum \"", einsum.expression, "\": the path ends with ", tensors, " tensors, expected one"));
  return path;
}

std::vector<Layout> read_layouts(const Einsum& einsum, const std::vector<Index>& words) {
  const auto fail = [&](const auto&... parts) { throw Error(text("einsum \"", einsum.expression, "\": ", parts...)); };
  Layout extents;  // of every index
  std::size_t at = 0;
  const auto read = [&](const std::string& indices) {
    const std::size_t ndim = indices.size();
    if (at + 2 * ndim > words.size()) fail("too few extents and strides, got ", words.size());
    Layout layout;
    for (std::size_t d = 0; d < ndim; ++d) {
      const char index = indices[d];
      const Index extent = words[at + d];
      if (extent < 0 || (extents.has(index) && extents.extent(index) != extent))
        fail("extent ", extent, " of index ", index, " differs from another");
      extents.add(index, extent, 0);
      layout.add(index, extent, words[at + ndim + d]);
    }
    at += 2 * ndim;
    return layout;
  };
  std::vector<Layout> all;
  for (const std::string& indices : einsum.operands) all.push_back(read(indices));
  all.push_back(read(einsum.result));
  if (at != words.size()) fail("expected ", at, " extents and strides, got ", words.size());
  return all;
}

std::optional<std::size_t> find_khatri_rao_tensor(const std::vector<Layout>& operands, const Layout& result) {
  if (operands.size() < 3) return {};
  const auto longest = std::max_element(operands.begin(), operands.end(), [](const Layout& x, const Layout& y) {
    return x.indices.size() < y.indices.size();
  });
  const Layout& tensor = *longest;
  std::string summed, common;
  for (auto factor = operands.begin(); factor != operands.end(); ++factor) {
    if (factor == longest) continue;
    if (factor->indices.size() != 2) return {};
    for (const char index : factor->indices) (tensor.has(index) ? summed : common) += index;
  }
  const std::size_t factors = operands.size() - 1;
  const bool one_common = common.size() == factors && common.find_first_not_of(common.front()) == std::string::npos;
  if (!one_common || summed.size() != factors || !result.has(common.front())) return {};
  if (result.indices.size() + factors != tensor.indices.size() + 1) return {};
  for (const char index : tensor.indices)
    if (std::count(summed.begin(), summed.end(), index) != (result.has(index) ? 0 : 1)) return {};
  return static_cast<std::size_t>(longest - operands.begin());
}

bool is_khatri_rao_product(const std::string& expression) {
  const Einsum einsum(expression);
  std::vector<Layout> operands;
  for (const std::string& indices : einsum.operands) {
    Layout& operand = operands.emplace_back();
    for (const char index : indices) operand.add(index, 1, 1);
  }
  return find_khatri_rao_tensor(operands, {einsum.result, {}, {}}).has_value();
}

Dimensions dimensions_of(const Layout& a, const Layout& b, const Layout& c) {
  Dimensions dimensions;
  const std::array<const Layout*, 3> tensors{&a, &b, &c};
  std::string seen;
  for (const Layout* tensor : tensors)
    for (const char index : tensor->indices) {
      if (seen.find(index) != std::string::npos) continue;
      seen += index;
      Dimension dimension;
      for (const Operand t : {A, B, C}) {
        if (!tensors[t]->has(index)) continue;
        dimension.extent = tensors[t]->extent(index);
        dimension.strides[t] = tensors[t]->stride(index);
        dimension.holders |= 1u << t;
      }
      dimensions.push_back(dimension);
    }
  return dimensions;
}

/// Merges one pair of dimensions; false if there is none.
static bool merge_pair(Dimensions& dimensions) {
  for (std::size_t outer = 0; outer < dimensions.size(); ++outer)
    for (std::size_t inner = 0; inner < dimensions.size(); ++inner) {
      const Dimension &x = dimensions[outer], &y = dimensions[inner];
      if (outer == inner || x.holders != y.holders) continue;
      if (!adjoin(x, y, A) || !adjoin(x, y, B) || !adjoin(x, y, C)) continue;
      dimensions[inner].extent *= x.extent;
      dimensions.erase(dimensions.begin() + static_cast<std::ptrdiff_t>(outer));
      return true;
    }
  return false;
}

void merge_dimensions(Dimensions& dimensions) {
  const auto single = [](const Dimension& dimension) { return dimension.extent == 1; };
  dimensions.erase(std::remove_if(dimensions.begin(), dimensions.end(), single), dimensions.end());
  while (merge_pair(dimensions)) {
  }
}

}  // namespace dace_redist
