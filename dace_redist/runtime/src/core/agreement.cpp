// SPDX-License-Identifier: BSD-3-Clause
#include "core/agreement.hpp"

namespace dace_redist {

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

}  // namespace dace_redist
