// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The transports of a tensor whose source, target, or both lie in a device's memory: strategies Pack, Pipelined,
/// Shared and Hierarchical.

#include <cstddef>
#include <memory>
#include <vector>

#include "device/plan_device.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// How messages are cut, and the slots of a direction.
struct Staging {
  Index chunk_bytes = 0;
  double growth = 1;
  std::size_t depth = 0;  ///< 0: a slot for each chunk
  int threads = 1;        ///< for copies in main memory
};

/// Other ranks of this node with which messages are exchanged.
std::vector<int> node_peers(const std::vector<PeerMessage>& messages, const Link& link);

/// Messages in chunks through two rings of slots in pinned main memory: kernels, copies to main memory, transfers,
/// copies to the device and kernels of different chunks overlap. Between ranks of a node, the receiver copies a chunk
/// to its device from the sender's slot, which both have pinned; MPI carries the slot's place there, and a flag beside
/// the slots gives the slot back.
///
/// Partial results are unpacked in the order of the chunks, which is that of the reduction, and the self copy, if there
/// is one, between those of the summands before and after it.
///
/// \param messages  with a self copy of partial results only, which both lie on the device.
/// \param node_memory  whether messages may move through node-shared memory.
std::unique_ptr<Transport> make_staged(PlanDevice& device, const Link& link, const TensorProblem& problem,
                                       const Staging& staging, const Messages& messages, bool node_memory);

/// Messages between devices of one node that reach each other, and the self copy. Each rank tells those that send to it
/// where its array is. A sender that has heard from all its receivers moves all messages by one kernel, its self copy
/// included, and tells them when that is done. An array that other processes cannot map is received in a buffer, and
/// unpacked there. So are partial results, in the order of the reduction. Takes the tags `tag` and `tag + 1`.
std::unique_ptr<Transport> make_peer(PlanDevice& device, const Link& link, int tag, Messages messages);

}  // namespace dace_redist
