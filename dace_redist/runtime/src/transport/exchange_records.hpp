// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Records of fixed size that ranks send each other while they make a plan.

#include <cstddef>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/trace.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// Sends a record to each receiver, and receives one from each sender. Collective over these ranks. Throws if another
/// rank has failed.
/// \param outgoing  [receivers]
/// \return the records of the senders, in their order.
template <class Record>
std::vector<Record> exchange_records(const Link& link, const std::vector<int>& receivers, std::vector<Record> outgoing,
                                     const std::vector<int>& senders) {
  static_assert(std::is_trivially_copyable_v<Record>);
  struct Pending {
    std::vector<Record> outgoing, incoming;
    std::vector<MPI_Request> requests;
  };
  auto* const pending = new Pending{std::move(outgoing), std::vector<Record>(senders.size()), {}};
  // not freed if a call fails: MPI may still read and write there
  pending->requests.reserve(senders.size() + receivers.size());
  for (std::size_t s = 0; s < senders.size(); ++s)
    check(MPI_Irecv(&pending->incoming[s], sizeof(Record), MPI_BYTE, senders[s], link.tag, link.comm(),
                    &pending->requests.emplace_back()),
          "MPI_Irecv");
  for (std::size_t r = 0; r < receivers.size(); ++r)
    check(MPI_Isend(&pending->outgoing[r], sizeof(Record), MPI_BYTE, receivers[r], link.tag, link.comm(),
                    &pending->requests.emplace_back()),
          "MPI_Isend");
  const trace::Span span("wait");
  for (int complete = 0; !complete;) {
    check(MPI_Testall(static_cast<int>(pending->requests.size()), pending->requests.data(), &complete,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (complete) break;
    link.context.check_failures(link.owner);
    const MpiPause others;
    std::this_thread::yield();
  }
  const std::unique_ptr<Pending> finished(pending);
  return std::move(finished->incoming);
}

}  // namespace dace_redist
