// SPDX-License-Identifier: BSD-3-Clause
#include "plan/problem.hpp"

#include <algorithm>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string_view>

#include "copy/stream_threshold.hpp"
#include "core/agreement.hpp"
#include "transport/context.hpp"

namespace dace_redist {
namespace {

std::string exact_text(std::int64_t number) { return std::to_string(number); }
/// With 6 digits where these are exact.
std::string exact_text(double number) {
  const std::string brief = text(number);
  return std::strtod(brief.c_str(), nullptr) == number ? brief : text(std::setprecision(17), number);
}
std::string exact_text(std::complex<double> number) {
  const std::string real = exact_text(number.real());
  return number.imag() == 0 ? real : text(real, " + ", exact_text(number.imag()), "i");
}

/// A name for each entry of an encoding, such as `source shape[1]`. The numbers of entries come before the entries.
std::vector<std::string> entry_names(const char* name, const Encoding& encoding) {
  std::vector<std::string> names;
  const auto one = [&](const char* entry) { names.push_back(text(name, " ", entry)); };
  const auto list = [&](const char* entry, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) names.push_back(text(name, " ", entry, "[", i, "]"));
  };
  one("kind");
  one("number of dimensions");
  const auto ndim = static_cast<std::size_t>(encoding[1]);
  if (encoding[0] == blocked_kind) one("number of grid axes");
  list("shape", ndim);
  if (encoding[0] == blocked_kind) {
    const auto grid_ndim = static_cast<std::size_t>(encoding[2]);
    list("grid", grid_ndim);
    list("dims", ndim);
    list("block", ndim);
    list("pins", grid_ndim);
    one("number of ranks");
    list("ranks", encoding.size() - names.size());
  } else {
    list("tile", ndim);
    list("owner of tile", encoding.size() - names.size());
  }
  return names;
}

/// As entry_names(), of an encoded IndexMap: axes only, or axes and region.
std::vector<std::string> map_entry_names(std::size_t size, int ndim) {
  std::vector<std::string> names;
  for (const char* part : {"axes", "source offset of the region", "target offset of the region", "shape of the region"})
    for (int i = 0; i < ndim && names.size() < size; ++i) names.push_back(text(part, "[", i, "]"));
  return names;
}

/// Everything that must be equal on all ranks: a line with a name, and one with the value.
/// \param by_name  numbers and entries of encodings have lines, too; else they are appended as they are.
std::string agreed_lines(const Problem& problem, bool by_name) {
  std::string lines;
  const auto add = [&](std::string_view name, std::string_view value) {
    lines.append(name) += '\n';
    lines.append(value) += '\n';
  };
  const auto add_number = [&](std::string_view name, auto number) {
    if (by_name) return add(name, exact_text(number));
    lines.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto add_encoding = [&](const Encoding& encoding, const auto& entry_names) {
    if (!by_name) lines.append(reinterpret_cast<const char*>(encoding.data()), encoding.size() * sizeof(Index)) += '\n';
    const std::vector<std::string> names = by_name ? entry_names() : std::vector<std::string>{};
    for (std::size_t at = 0; at < names.size(); ++at) add(names[at], std::to_string(encoding[at]));
  };
  const auto place = [](Memory memory) { return memory == Memory::host ? "main memory" : "a device"; };
  add("strategy", problem.strategy);
  each_option([&](const auto& option) {
    if (std::strcmp(option.name, "threads") != 0) add_number(option.name, problem.options.*option.member);
  });
  const char* const node_ranks = std::getenv(node_ranks_variable);
  add(node_ranks_variable, node_ranks ? node_ranks : "not set");
  add_number("number of tensors", static_cast<Index>(problem.tensors.size()));
  add("type of elements", problem.elements);
  for (const TensorProblem& tensor : problem.tensors) {
    const ElementOperation& operation = tensor.operation;
    add_number("element size in bytes", tensor.element_bytes);
    add("memory of the source array", place(tensor.source_memory));
    add("memory of the target array", place(tensor.target_memory));
    add("type of the source's elements", element_name(operation.source));
    add("type of the target's elements", element_name(operation.target));
    add_number("alpha", operation.alpha);
    add_number("beta", operation.beta);
    add("conj", operation.conjugate ? "1" : "0");
    add("op", reduction_names[static_cast<std::size_t>(operation.reduction)]);
    add_encoding(tensor.source.encoding(), [&] { return entry_names("source", tensor.source.encoding()); });
    add_encoding(tensor.target.encoding(), [&] { return entry_names("target", tensor.target.encoding()); });
    add_number("the length of axes and region", static_cast<Index>(tensor.index_map.size()));
    add_encoding(tensor.index_map, [&] { return map_entry_names(tensor.index_map.size(), tensor.source.ndim()); });
  }
  return lines;
}

/// The first value that differs.
std::string first_difference(const std::string& first, const std::string& other, int rank) {
  std::istringstream in_first(first), in_other(other);
  std::string name, value, other_name, other_value;
  do {
    std::getline(in_first, name) && std::getline(in_first, value);
    std::getline(in_other, other_name) && std::getline(in_other, other_value);
  } while (in_first && in_other && value == other_value);
  return text("the ranks differ: ", name, " is ", value, " on rank 0 and ", other_value, " on rank ", rank);
}

}  // namespace

void check_problem(const Problem& problem, int ranks) {
  check_options(problem.options);
  stream_threshold_bytes();  // throws if the environment has it wrong
  max_node_ranks();
  if (problem.tensors.empty()) throw Error("no tensor was given: expected at least one");
  for (const TensorProblem& tensor : problem.tensors) {
    if (tensor.element_bytes < 1)
      throw Error(text("the element size must be 1 byte or more, got ", tensor.element_bytes));
    if (tensor.element_bytes > std::numeric_limits<int>::max())
      throw Error(text("the element size must be at most ", std::numeric_limits<int>::max(),
                       " bytes, the longest message of MPI, got ", tensor.element_bytes));
    const ElementOperation& operation = tensor.operation;
    if (operation.reduction != Reduction::none && operation.reduction != Reduction::sum && operation.beta != 0.0)
      throw Error("beta other than 0 requires op=\"sum\"");
    for (const Distribution* distribution : {&tensor.source, &tensor.target})
      if (distribution->ranks_needed() > ranks)
        throw Error(text("the ", distribution->name(), " distribution names ranks up to ",
                         distribution->ranks_needed() - 1, ", but the communicator has ", ranks,
                         " ranks; start the program with mpiexec -n ", distribution->ranks_needed(),
                         ", or pass a larger communicator"));
  }
}

std::uint64_t agreement_hash(const Problem& problem) {
  return std::max<std::uint64_t>(std::hash<std::string>()(agreed_lines(problem, false)), 1);
}

void throw_difference(MPI_Comm comm, const Problem& problem) {
  const std::string mine = agreed_lines(problem, true), first = broadcast_text(comm, mine, 0);
  const int other = lowest_rank(comm, mine != first);
  throw Error(broadcast_text(comm, first_difference(first, mine, other), std::max(0, other)));
}

LocalLayout local_layout(const Distribution& distribution, const LocalArray& array, Index rank, const char* side) {
  const std::vector<Index> needed = distribution.local_shape(rank);
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
  for (const Index stride : layout.strides)
    if (stride < 0)  // Open MPI (4.1.4, 5.0.11) sends bytes of stride -1 in ascending order
      throw Error(text("the local ", side, " array of rank ", rank, " has strides ", tuple_text(layout.strides),
                       "; none may be negative: copy the array first"));
  if (layout.strides == c_strides(needed)) return {};
  return layout;
}

}  // namespace dace_redist
