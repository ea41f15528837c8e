// SPDX-License-Identifier: BSD-3-Clause
#include "plan/problem.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include "copy/stream_threshold.hpp"
#include "core/agreement.hpp"
#include "transport/context.hpp"

namespace dace_redist {
namespace {

/// Calls `visit(name, value)` for everything that must be equal on all ranks. A value is a number, a complex number, a
/// string or an Encoding.
template <class Visit>
void each_agreed(const Problem& problem, const Visit& visit) {
  visit("strategy", problem.strategy);
  each_option([&](const auto& option) {
    if (std::strcmp(option.name, "threads") != 0) visit(option.name, problem.options.*option.member);
  });
  const char* const node_ranks = std::getenv(node_ranks_variable);
  visit(node_ranks_variable, std::string(node_ranks ? node_ranks : "not set"));
  visit("number of tensors", problem.tensors.size());
  for (const TensorProblem& tensor : problem.tensors) {
    visit("element size in bytes", tensor.element_bytes);
    visit("memory of the source array", std::string(tensor.source_memory == Memory::host ? "main memory" : "a device"));
    visit("memory of the target array", std::string(tensor.target_memory == Memory::host ? "main memory" : "a device"));
    visit("type of the source's elements", std::string(element_name(tensor.operation.source)));
    visit("type of the target's elements", std::string(element_name(tensor.operation.target)));
    visit("alpha", tensor.operation.alpha);
    visit("beta", tensor.operation.beta);
    visit("conj", static_cast<int>(tensor.operation.conjugate));
    visit("op", std::string(reduction_names[static_cast<std::size_t>(tensor.operation.reduction)]));
    visit("source", tensor.source.encoding());
    visit("target", tensor.target.encoding());
    visit("index map", tensor.index_map);
  }
}

/// Hashes the values that it is called with: FNV-1a over words, mixed.
struct Hashing {
  mutable std::uint64_t value = 14695981039346656037ull;

  void add(std::uint64_t word) const {
    value = (value ^ word) * 1099511628211ull;
    value ^= value >> 29;
  }
  void operator()(const char*, const std::string& string) const {
    for (const char letter : string) add(static_cast<unsigned char>(letter));
    add(string.size());
  }
  void operator()(const char*, const Encoding& numbers) const {
    for (const Index number : numbers) add(static_cast<std::uint64_t>(number));
    add(numbers.size());
  }
  void operator()(const char*, double number) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    add(bits);
  }
  void operator()(const char* name, const std::complex<double>& number) const {
    (*this)(name, number.real());
    (*this)(name, number.imag());
  }
  template <class Integer>
  void operator()(const char*, Integer number) const {
    add(static_cast<std::uint64_t>(number));
  }
};

/// What an entry of a distribution's encoding means, such as `shape[1]`.
std::string entry_name(const Encoding& encoding, std::size_t at) {
  if (at == 0) return "kind";
  if (at == 1) return "number of dimensions";
  const std::size_t ndim = static_cast<std::size_t>(encoding[1]);
  const bool blocked = encoding[0] == blocked_kind;
  if (blocked && at == 2) return "number of grid axes";
  struct Field {
    const char* name;
    std::size_t count;
    bool listed = true;
  };
  const std::size_t grid_ndim = blocked && encoding.size() > 2 ? static_cast<std::size_t>(encoding[2]) : 0;
  const std::vector<Field> fields =
      blocked ? std::vector<Field>{{"shape", ndim},           {"grid", grid_ndim}, {"dims", ndim},
                                   {"block", ndim},           {"pins", grid_ndim}, {"number of ranks", 1, false},
                                   {"ranks", encoding.size()}}
              : std::vector<Field>{{"shape", ndim}, {"tile", ndim}, {"owner of tile", encoding.size()}};
  std::size_t begin = blocked ? 3 : 2;
  for (const Field& field : fields) {
    if (at < begin + field.count) return field.listed ? text(field.name, "[", at - begin, "]") : field.name;
    begin += field.count;
  }
  return text("number ", at, " of its encoding");
}

/// What an entry of an encoded IndexMap means, such as `axes[1]`.
std::string index_map_entry_name(std::size_t at, std::size_t size) {
  static const char* const names[] = {"axes", "source offset of the region", "target offset of the region",
                                      "shape of the region"};
  // axes only, or all four of them
  return text(names[size % 4 == 0 ? at / std::max<std::size_t>(1, size / 4) : 0], "[",
              size % 4 == 0 ? at % std::max<std::size_t>(1, size / 4) : at, "]");
}

using NamedValues = std::vector<std::pair<std::string, std::string>>;

/// Collects the values that it is called with, as texts, one for each entry of an encoding.
struct Naming {
  NamedValues* values;

  template <class Value>
  void operator()(const char* name, const Value& value) const {
    values->emplace_back(name, text(value));
  }
  void operator()(const char* name, const std::complex<double>& value) const {
    values->emplace_back(name, value.imag() == 0 ? text(value.real()) : text(value.real(), " + ", value.imag(), "i"));
  }
  void operator()(const char* name, const Encoding& encoding) const {
    const bool map = std::strcmp(name, "index map") == 0;
    values->emplace_back(map ? "the length of axes and region" : text("the length of the ", name, " distribution"),
                         text(encoding.size()));
    for (std::size_t at = 0; at < encoding.size(); ++at)
      values->emplace_back(map ? index_map_entry_name(at, encoding.size()) : text(name, " ", entry_name(encoding, at)),
                           text(encoding[at]));
  }
};

/// The values of a rank as one text: names and values, a line each.
std::string serialized(const NamedValues& values) {
  std::string lines;
  for (const auto& [name, value] : values) lines += name + "\n" + value + "\n";
  return lines;
}

NamedValues parsed(const std::string& lines) {
  NamedValues values;
  std::istringstream in(lines);
  for (std::string name, value; std::getline(in, name) && std::getline(in, value);) values.emplace_back(name, value);
  return values;
}

/// The first value that differs. Entries of encodings come before the lengths of the same encodings.
std::string first_difference(const NamedValues& first, const NamedValues& other, int rank) {
  for (std::size_t at = 0; at < std::min(first.size(), other.size()); ++at) {
    const bool length = first[at].first.rfind("the length", 0) == 0;
    if (first[at] == other[at]) continue;
    if (length && at + 1 < std::min(first.size(), other.size()) && first[at + 1].first == other[at + 1].first) continue;
    return text("the ranks differ: ", first[at].first, " is ", first[at].second, " on rank 0 and ", other[at].second,
                " on rank ", rank);
  }
  return text("the ranks differ: their distributions have other lengths on ranks 0 and ", rank);
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
  const Hashing hash;
  each_agreed(problem, hash);
  return hash.value == 0 ? 1 : hash.value;
}

void throw_difference(MPI_Comm comm, const Problem& problem) {
  NamedValues mine;
  each_agreed(problem, Naming{&mine});
  const std::string first = broadcast_text(comm, serialized(mine), 0);
  const int other = lowest_rank(comm, serialized(mine) != first);
  const std::string difference = first_difference(parsed(first), mine, other);
  throw Error(broadcast_text(comm, difference, std::max(0, other)));
}

LocalLayout local_layout(const Distribution& distribution, const LocalArray& array, Index rank, const char* side) {
  const std::vector<Index> needed = distribution.local_shape(rank);
  if (array.shape.empty() && array.strides.empty()) return {c_strides(needed)};
  LocalLayout layout{array.strides};
  layout.strides.resize(needed.size());
  if (std::count(needed.begin(), needed.end(), 0) > 0) return layout;
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
  return layout;
}

LocalLayout abbreviated(const Distribution& distribution, const LocalLayout& layout, Index rank) {
  return layout.strides == c_strides(distribution.local_shape(rank)) ? LocalLayout{} : layout;
}

}  // namespace dace_redist
