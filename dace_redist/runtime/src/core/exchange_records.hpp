// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Records of fixed size that ranks send each other while they make a plan.

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/mpi.hpp"

namespace dace_redist {

/// Sends a record to each receiver, and receives one from each sender. Collective over these ranks.
/// \param outgoing  [receivers]
/// \return the records of the senders, in their order.
template <class Record>
std::vector<Record> exchange_records(MPI_Comm comm, int tag, const std::vector<int>& receivers,
                                     std::vector<Record> outgoing, const std::vector<int>& senders) {
  static_assert(std::is_trivially_copyable_v<Record>);
  struct Transfer {
    std::vector<Record> outgoing, incoming;
    std::vector<MPI_Request> requests;
  };
  auto* const transfer = new Transfer{std::move(outgoing), std::vector<Record>(senders.size()), {}};
  // not freed if a call fails: MPI may still read and write there
  transfer->requests.reserve(senders.size() + receivers.size());
  for (std::size_t s = 0; s < senders.size(); ++s)
    check(MPI_Irecv(&transfer->incoming[s], sizeof(Record), MPI_BYTE, senders[s], tag, comm,
                    &transfer->requests.emplace_back()),
          "MPI_Irecv");
  for (std::size_t r = 0; r < receivers.size(); ++r)
    check(MPI_Isend(&transfer->outgoing[r], sizeof(Record), MPI_BYTE, receivers[r], tag, comm,
                    &transfer->requests.emplace_back()),
          "MPI_Isend");
  wait_all(transfer->requests);
  const std::unique_ptr<Transfer> finished(transfer);
  return std::move(finished->incoming);
}

}  // namespace dace_redist
