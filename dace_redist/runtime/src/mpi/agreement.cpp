// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/agreement.hpp"

#include <cstdint>
#include <exception>
#include <string>

namespace dace_redist {

namespace {

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

/// Rank `root`'s text, on every rank. Collective.
std::string broadcast_text(MPI_Comm comm, std::string message, int root) {
  int length = static_cast<int>(message.size());
  check(MPI_Bcast(&length, 1, MPI_INT, root, comm), "MPI_Bcast");
  message.resize(static_cast<std::size_t>(length));
  check(MPI_Bcast(message.data(), length, MPI_CHAR, root, comm), "MPI_Bcast");
  return message;
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

int lowest_rank(MPI_Comm comm, bool holds) {
  const int size = comm_size(comm), mine = holds ? comm_rank(comm) : size;
  int lowest = size;
  check(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return lowest == size ? -1 : lowest;
}

void all_or_none(MPI_Comm comm, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "unknown error";
  }
  const int failed = lowest_rank(comm, !failure.empty());
  if (failed < 0) return;
  const std::string message = broadcast_text(comm, failure, failed);
  throw Error(failure.empty() ? text("on rank ", failed, ": ", message) : failure);
}

void check_agreement(MPI_Comm comm, const Encoding& encoding) {
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
    if (at == 0) return letters_in(list[0]);  // the strategy
    return at < list.size() ? text(list[at]) : std::string("missing");
  };
  const bool named = at < encoding.size() && at < first.size();
  const std::string difference =
      text("the ranks differ: ", named ? agreed_entry_name(encoding, at) : std::string("the length"), " is ",
           value(first), " on rank 0 and ", value(encoding), " on rank ", other);
  throw Error(broadcast_text(comm, difference, other));
}

}  // namespace dace_redist
