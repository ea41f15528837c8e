// SPDX-License-Identifier: BSD-3-Clause
#include "plan/problem.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "copy/stream_threshold.hpp"
#include "transport/context.hpp"

namespace dace_redist {
namespace {

std::string exact_text(std::int64_t number) { return std::to_string(number); }
/// With 6 digits where these are exact.
std::string exact_text(double number) {
  std::array<char, 32> words{};
  for (const int digits : {6, 17}) {
    std::snprintf(words.data(), words.size(), "%.*g", digits, number);
    if (std::strtod(words.data(), nullptr) == number) break;
  }
  return words.data();
}
std::string exact_text(std::complex<double> number) {
  const std::string real = exact_text(number.real());
  return number.imag() == 0 ? real : text(real, " + ", exact_text(number.imag()), "i");
}

/// Name and length of a list of numbers; the name of a single number has no bracket.
struct NamedList {
  const char* name;
  Index count;
};

/// The lists of an encoding, one after another. Those that determine the length of others come first.
std::vector<NamedList> lists_of(const Encoding& encoding) {
  const auto size = static_cast<Index>(encoding.size()), ndim = encoding[1];
  if (encoding[0] == margins_kind) {
    std::vector<NamedList> lists{{"kind", 1}, {"number of dimensions", 1}, {"halo[", ndim}, {"periodic[", ndim}};
    for (const NamedList& list : lists_of({encoding.begin() + 2 + 2 * ndim, encoding.end()})) lists.push_back(list);
    return lists;
  }
  const NamedList kind{"kind", 1}, dimensions{"number of dimensions", 1}, shape{"shape[", ndim};
  if (encoding[0] == tiled_kind)
    return {kind, dimensions, shape, {"tile[", ndim}, {"owner of tile[", size - 2 - 2 * ndim}};
  if (encoding[0] == boxed_kind)
    return {kind, dimensions, shape, {"number of boxes", 1}, {"number of the list of boxes[", size - 3 - ndim}};
  const Index axes = encoding[2], ranks = encoding[static_cast<std::size_t>(3 + 3 * ndim + 2 * axes)];
  return {kind,
          dimensions,
          {"number of grid axes", 1},
          shape,
          {"grid[", axes},
          {"dims[", ndim},
          {"block[", ndim},
          {"pins[", axes},
          {"number of ranks", 1},
          {"ranks[", ranks},
          {"lengths of parts[", size - 4 - 3 * ndim - 2 * axes - ranks}};
}

/// The lists of an encoded IndexMap, which may be wrong: axes only, axes and region, or axes of a reshape.
std::vector<NamedList> map_lists(const Encoding& map, Index ndim) {
  const auto size = static_cast<Index>(map.size());
  if (size > 0 && map[0] < 0) return {{"kind of reshape", 1}, {"axes[", size - 1}};
  if (size != 4 * ndim) return {{"axes[", size}};
  return {{"axes[", ndim},
          {"source offset of the region[", ndim},
          {"target offset of the region[", ndim},
          {"shape of the region[", ndim}};
}

void add_lists(std::string& facts, std::string_view prefix, const Encoding& encoding,
               const std::vector<NamedList>& lists) {
  auto number = encoding.begin();
  for (const auto& [name, count] : lists) {
    facts.append(prefix).append(name) += '\n';
    for (Index n = 0; n < count; ++n) facts.append(n > 0 ? " " : "") += std::to_string(*number++);
    facts += '\n';
  }
}

}  // namespace

std::string facts_of(const Distribution& distribution, const std::string& prefix) {
  std::string facts;
  add_lists(facts, prefix, distribution.encoding(), lists_of(distribution.encoding()));
  return facts;
}

std::string agreed_facts(const Problem& problem) {
  std::string facts;
  const auto add = [&](std::string_view name, std::string_view value) {
    (facts.append(name) += '\n').append(value) += '\n';
  };
  const auto place = [](Memory memory) { return memory == Memory::host ? "main memory" : "a device"; };
  add("strategy", problem.strategy);
  each_option([&](const auto& option) {
    if (std::strcmp(option.name, "threads") != 0) add(option.name, exact_text(problem.options.*option.member));
  });
  const char* const node_ranks = std::getenv(node_ranks_variable);
  add(node_ranks_variable, node_ranks ? node_ranks : "not set");
  add("number of tensors", std::to_string(problem.tensors.size()));
  add("type of elements", problem.elements);
  for (const TensorProblem& tensor : problem.tensors) {
    const ElementOperation& operation = tensor.operation;
    add("element size in bytes", std::to_string(tensor.element_bytes));
    add("memory of the source array", place(tensor.source_memory));
    add("memory of the target array", place(tensor.target_memory));
    add("type of the source's elements", element_name(operation.source));
    add("type of the target's elements", element_name(operation.target));
    add("alpha", exact_text(operation.alpha));
    add("beta", exact_text(operation.beta));
    add("conj", operation.conjugate ? "1" : "0");
    add("op", reduction_names[static_cast<std::size_t>(operation.reduction)]);
    add("wire", element_name(operation.wire));
    add("within_nodes", operation.wire_within_nodes ? "1" : "0");
    add("accumulate", element_name(operation.accumulate));
    add("reproducible", operation.reproducible ? "1" : "0");
    facts += facts_of(tensor.source, "source ") + facts_of(tensor.target, "target ");
    add("the length of axes, region and reshape", std::to_string(tensor.index_map.size()));
    add_lists(facts, "", tensor.index_map, map_lists(tensor.index_map, tensor.source.ndim()));
  }
  return facts;
}

void check_problem(const Problem& problem, int ranks) {
  check_options(problem.options);
  stream_threshold_bytes();  // throws if the environment has it wrong
  max_node_ranks();
  if (problem.tensors.empty()) throw Error("no tensor was given: expected at least one");
  for (const TensorProblem& tensor : problem.tensors) {
    check_element_bytes(tensor.element_bytes);
    if (tensor.element_bytes > std::numeric_limits<int>::max())
      throw Error(text("the element size must be at most ", std::numeric_limits<int>::max(),
                       " bytes, the longest message of MPI, got ", tensor.element_bytes));
    const ElementOperation& operation = tensor.operation;
    if (operation.source != ElementType::opaque && tensor.element_bytes != element_bytes_of(operation.source))
      throw Error(text("elements of type ", element_name(operation.source), " have ",
                       element_bytes_of(operation.source), " bytes, not ", tensor.element_bytes));
    if (operation.reduction != Reduction::none && operation.reduction != Reduction::sum && operation.beta != 0.0)
      throw Error("beta other than 0 requires op=\"sum\"");
    if (operation.accumulate != ElementType::opaque &&
        element_bytes_of(operation.accumulate) < element_bytes_of(operation.target))
      throw Error(text("accumulate must have at least as many bytes as the target's type ",
                       element_name(operation.target), ", got ", element_name(operation.accumulate)));
    const bool wired = operation.wire != ElementType::opaque, accumulates = operation.accumulate != ElementType::opaque;
    if (operation.reduction == Reduction::none && (accumulates || operation.reproducible))
      throw Error("accumulate and reproducible require op: nothing is reduced without");
    if ((accumulates || operation.reproducible) && tensor.target.boxed() && tensor.target.has_margins())
      throw Error(
          "accumulate and reproducible require a target without margins where it is in boxes, which may not hold the "
          "elements of the margins");
    if (wired && operation.reproducible && !operation.wire_within_nodes)
      throw Error(
          "reproducible requires a type on the wire that is that of all elements (within_nodes), or none: which "
          "elements move between nodes depends on where ranks run");
    if (!wired && operation.wire_within_nodes) throw Error("within_nodes requires wire, the type of the elements");
    if (tensor.on_device() && (wired || accumulates)) throw Error("wire and accumulate require arrays in main memory");
    if (operation.reduction != Reduction::none && tensor.source.boxed())
      throw Error(
          "op reduces the replicas of blocks, but the source is in boxes: these are replicas where they overlap");
    for (const Distribution* distribution : {&tensor.source, &tensor.target}) {
      std::vector<Index> bytes{std::max(tensor.element_bytes, tensor.target_bytes())};
      for (const AxisSplit& axis : distribution->axes()) bytes.push_back(axis.extent);
      checked_product(bytes, "bytes per element, and shape", text("the ", distribution->name(), " distribution"));
      if (distribution->ranks_needed() > ranks)
        throw Error(text("the ", distribution->name(), " distribution names ranks up to ",
                         distribution->ranks_needed() - 1, ", but the communicator has ", ranks,
                         " ranks; start the program with mpiexec -n ", distribution->ranks_needed(),
                         ", or pass a larger communicator"));
    }
  }
}

void check_element_bytes(Index element_bytes) {
  if (element_bytes < 1) throw Error(text("element_bytes must be set, to 1 or more, got ", element_bytes));
}

LocalLayout local_layout(const Distribution& distribution, const LocalArray& array, Index element_bytes, Index rank,
                         const char* side) {
  std::vector<Index> needed = distribution.local_shape(rank);
  if (distribution.boxed() && array.shape.size() == 1)  // one box may lie in an array of one dimension, too
    needed = {checked_product(needed, "box")};
  if (array.shape.empty() && array.strides.empty()) return {};
  if (std::count(needed.begin(), needed.end(), 0) > 0) return {};
  LocalLayout layout{array.strides};
  layout.strides.resize(needed.size());
  bool fits = needed.size() == array.shape.size();
  if (needed.empty()) fits = std::count(array.shape.begin(), array.shape.end(), 0) == 0;
  for (std::size_t i = 0; fits && i < needed.size(); ++i) fits = needed[i] <= array.shape[i];
  if (!fits)
    throw Error(text("the local ", side, " array of rank ", rank, " has shape ", tuple_text(array.shape),
                     ", but its part of the distribution has shape ", tuple_text(needed)));
  Index room =
      std::numeric_limits<Index>::max() / std::max(element_bytes, element_alignment);  // of converted ones, too
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const Index stride = layout.strides[i];
    if (stride < 0)  // Open MPI (4.1.4, 5.0.11) sends bytes of stride -1 in ascending order
      throw Error(text("the local ", side, " array of rank ", rank, " has strides ", tuple_text(layout.strides),
                       "; none may be negative: copy the array first"));
    if (stride == 0 && needed[i] > 1 && std::string_view(side) == "target")
      throw Error(text("the local target array of rank ", rank, " of shape ", tuple_text(needed), " has strides ",
                       tuple_text(layout.strides), ", by which elements share memory"));
    if (stride > room / needed[i])
      throw Error(text("the local ", side, " array of rank ", rank, " of shape ", tuple_text(needed), " has strides ",
                       tuple_text(layout.strides), ", in elements, which lead out of the memory that 64 bits address"));
    room -= stride * needed[i];
  }
  if (layout.strides == c_strides(needed)) return {};
  return layout;
}

}  // namespace dace_redist
