// SPDX-License-Identifier: BSD-3-Clause
#include "plan/description.hpp"

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/agreement.hpp"

namespace dace_redist {

namespace {

/// What a number of a distribution means, such as `shape[1]`.
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

/// What a number of an encoded IndexMap means, such as `axes[1]`.
std::string index_map_entry_name(std::size_t at, std::size_t ndim) {
  static const char* const names[] = {"axes", "source offset of the region", "target offset of the region",
                                      "shape of the region"};
  return ndim == 0 || at >= 4 * ndim ? std::string("the length of axes and region")
                                     : text(names[at / ndim], "[", at % ndim, "]");
}

/// The first eight letters of a name as a number, and back.
constexpr std::size_t most_letters = 8;  // of a name that is sent as a number

Index name_as_number(const std::string& name) {
  Index number = 0;
  for (std::size_t i = 0; i < std::min(name.size(), most_letters); ++i) number = number * 128 + (name[i] & 127);
  return number;
}
std::string letters_in(Index number) {
  std::string name;
  for (; number > 0; number /= 128) name.insert(name.begin(), static_cast<char>(number % 128));
  return name;
}

/// The part of a description that must be equal on all ranks, as numbers.
Encoding agreed_entries(const Description& description) {
  const Options& options = description.options;
  const bool growth_known = options.growth >= 1.0 && options.growth <= 1e6;  // else refused later, on every rank
  Encoding encoding{name_as_number(description.strategy),
                    description.element_bytes,
                    options.chunk_bytes,
                    options.depth,
                    growth_known ? static_cast<Index>(options.growth * 1e6) : -1,
                    options.slot_bytes,
                    options.max_message_bytes,
                    most_node_ranks(),
                    static_cast<Index>(description.source_memory),
                    static_cast<Index>(description.target_memory)};
  const ElementOperation& operation = description.operation;
  encoding.push_back(static_cast<Index>(operation.source));
  encoding.push_back(static_cast<Index>(operation.target));
  for (const std::complex<double> factor : {operation.alpha, operation.beta})
    for (const double part : {factor.real(), factor.imag()}) {
      Index bits = 0;
      static_assert(sizeof bits == sizeof part, "a factor is compared by its bits");
      std::memcpy(&bits, &part, sizeof part);
      encoding.push_back(bits);
    }
  encoding.push_back(operation.conjugate);
  encoding.push_back(static_cast<Index>(operation.reduction));
  encoding.push_back(static_cast<Index>(description.source.size()));
  for (const Encoding* part : {&description.source, &description.target, &description.index_map})
    encoding.insert(encoding.end(), part->begin(), part->end());
  encoding.push_back(static_cast<Index>(description.index_map.size()));
  return encoding;
}

/// What a number of agreed_entries() means.
std::string agreed_entry_name(const Encoding& encoding, std::size_t at) {
  static const std::vector<const char*> names{"strategy",
                                              "element size in bytes",
                                              "chunk_bytes",
                                              "depth",
                                              "growth (1e-6)",
                                              "slot_bytes",
                                              "max_message_bytes",
                                              node_ranks_variable,
                                              "memory of the source array (0: main memory, 1: device)",
                                              "memory of the target array (0: main memory, 1: device)",
                                              "number of the source's element type",
                                              "number of the target's element type",
                                              "alpha (bits of its real part)",
                                              "alpha (bits of its imaginary part)",
                                              "beta (bits of its real part)",
                                              "beta (bits of its imaginary part)",
                                              "conj",
                                              "number of the op",
                                              "length of the source distribution"};
  const std::size_t head = names.size();
  if (at < head) return names[at];
  const std::size_t source_end = head + static_cast<std::size_t>(encoding[head - 1]);
  const std::size_t target_end = encoding.size() - 1 - static_cast<std::size_t>(encoding.back());
  const auto part = [&](std::size_t lo, std::size_t hi) {
    return Encoding(encoding.begin() + static_cast<std::ptrdiff_t>(lo),
                    encoding.begin() + static_cast<std::ptrdiff_t>(hi));
  };
  if (at < source_end) return "source " + entry_name(part(head, source_end), at - head);
  if (at < target_end) return "target " + entry_name(part(source_end, target_end), at - source_end);
  return index_map_entry_name(at - target_end, static_cast<std::size_t>(encoding[head + 1]));
}

/// FNV-1a over numbers.
std::uint64_t hash(const Encoding& encoding) {
  std::uint64_t value = 14695981039346656037ull;
  for (const Index entry : encoding)
    for (int byte = 0; byte < 8; ++byte) {
      value ^= (static_cast<std::uint64_t>(entry) >> (8 * byte)) & 0xff;
      value *= 1099511628211ull;
    }
  return value;
}

/// Rank 0's numbers, on every rank. Collective.
Encoding broadcast_entries(MPI_Comm comm, Encoding encoding) {
  Index count = static_cast<Index>(encoding.size());
  check(MPI_Bcast(&count, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
  encoding.resize(static_cast<std::size_t>(count));
  check(MPI_Bcast(encoding.data(), static_cast<int>(count), MPI_INT64_T, 0, comm), "MPI_Bcast");
  return encoding;
}

}  // namespace

void check_agreement(MPI_Comm comm, const Description& description) {
  const Encoding encoding = agreed_entries(description);
  const std::uint64_t mine = hash(encoding);
  std::uint64_t range[2] = {mine, ~mine}, lowest[2];
  check(MPI_Allreduce(range, lowest, 2, MPI_UINT64_T, MPI_MIN, comm), "MPI_Allreduce");
  if (lowest[0] == ~lowest[1]) return;
  const Encoding first = broadcast_entries(comm, encoding);
  const int other = lowest_rank(comm, encoding != first);
  if (other < 0) return;
  std::size_t at = 0;
  while (at < encoding.size() && at < first.size() && encoding[at] == first[at]) ++at;
  const auto value = [at](const Encoding& list) {
    if (at == 0) {  // the strategy
      const std::string letters = letters_in(list[0]);
      return letters.size() < most_letters ? letters : letters + "...";
    }
    return at < list.size() ? text(list[at]) : std::string("missing");
  };
  const bool named = at < encoding.size() && at < first.size();
  const std::string difference =
      text("the ranks differ: ", named ? agreed_entry_name(encoding, at) : std::string("the length"), " is ",
           value(first), " on rank 0 and ", value(encoding), " on rank ", other);
  throw Error(broadcast_text(comm, difference, other));
}

LocalLayout local_layout(const Distribution& distribution, const Encoding& local, Index rank, const char* side) {
  const auto half = local.begin() + static_cast<std::ptrdiff_t>(local.size() / 2);
  const Encoding extents(local.begin(), half);
  LocalLayout layout{{half, local.end()}};
  const std::vector<Index> needed = distribution.local_shape(rank);
  if (std::count(needed.begin(), needed.end(), 0) > 0) {
    layout.strides.resize(needed.size());
    return layout;
  }
  bool fits = needed.size() == extents.size();
  if (needed.empty()) fits = std::count(extents.begin(), extents.end(), 0) == 0;
  for (std::size_t i = 0; fits && i < needed.size(); ++i) fits = needed[i] <= extents[i];
  if (!fits)
    throw Error(text("the local ", side, " array of rank ", rank, " has shape ", tuple_text(extents),
                     ", but its part of the distribution has shape ", tuple_text(needed)));
  layout.strides.resize(needed.size());
  for (const Index stride : layout.strides)
    if (stride < 0)  // Open MPI (4.1.4, 5.0.11) sends bytes of stride -1 in ascending order
      throw Error(text("the local ", side, " array of rank ", rank, " has strides ", tuple_text(layout.strides),
                       "; none may be negative: copy the array first"));
  return layout;
}

}  // namespace dace_redist
