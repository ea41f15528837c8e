// SPDX-License-Identifier: BSD-3-Clause
#include "core/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <sstream>

namespace dace_redist {
namespace {

std::string first_difference(const std::string& first, const std::string& other, int rank) {
  std::istringstream in_first(first), in_other(other);
  std::string name, values, other_name, other_values;
  do {
    std::getline(in_first, name) && std::getline(in_first, values);
    std::getline(in_other, other_name) && std::getline(in_other, other_values);
  } while (in_first && in_other && values == other_values);
  if (!name.empty() && name.back() == '[') {
    std::istringstream entries(values), other_entries(other_values);
    std::int64_t number = -1;
    do ++number;
    while (entries >> values && other_entries >> other_values && values == other_values);
    std::int64_t count = number + 1;
    for (std::string rest; entries >> rest;) ++count;
    name.pop_back();
    const auto ends_with = [&](const std::string& end) {
      return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
    };
    const bool by_position = ends_with("grid") || ends_with("ranks") || ends_with("parts");
    for (std::string* const value : {&values, &other_values}) {
      if (name == "axes") *value = std::to_string(counted_axis(std::stoll(*value), count));
      if (ends_with("dims") || ends_with("offset of the region")) *value = std::to_string(counted(std::stoll(*value)));
    }
    name = entry(name, by_position ? counted(number) : counted_axis(number, count));
  }
  return text("the ranks differ in ", name, ": ", values, " on rank 0 and ", other_values, " on rank ", rank);
}

}  // namespace

int lowest_rank(MPI_Comm comm, bool holds) {
  const int size = comm_size(comm), mine = holds ? comm_rank(comm) : size;
  int lowest = size;
  check(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return lowest == size ? -1 : lowest;
}

std::string broadcast_text(MPI_Comm comm, std::string message, int root) {
  int length = static_cast<int>(message.size());
  check(MPI_Bcast(&length, 1, MPI_INT, root, comm), "MPI_Bcast");
  message.resize(static_cast<std::size_t>(length));
  check(MPI_Bcast(message.data(), length, MPI_CHAR, root, comm), "MPI_Bcast");
  return message;
}

void throw_everywhere(MPI_Comm comm, const std::exception_ptr& thrown, int failed) {
  const std::string message = broadcast_text(comm, thrown ? message_of(thrown) : "", failed);
  if (thrown) std::rethrow_exception(thrown);
  throw Error(text("on rank ", failed, ": ", message));
}

void throw_everywhere(MPI_Comm comm, const std::exception_ptr& thrown) {
  const int failed = lowest_rank(comm, thrown != nullptr);
  if (failed >= 0) throw_everywhere(comm, thrown, failed);
}

void throw_difference(MPI_Comm comm, const std::string& facts) {
  const std::string first = broadcast_text(comm, facts, 0);
  const int other = lowest_rank(comm, facts != first);
  throw Error(broadcast_text(comm, first_difference(first, facts, other), std::max(0, other)));
}

void check_same(MPI_Comm comm, const std::string& facts) {
  const std::uint64_t hash = std::hash<std::string>()(facts), mine[] = {hash, ~hash};
  std::uint64_t lowest[2];
  check(MPI_Allreduce(mine, lowest, 2, MPI_UINT64_T, MPI_MIN, comm), "MPI_Allreduce");
  if (lowest[0] != ~lowest[1]) throw_difference(comm, facts);
}

}  // namespace dace_redist
