// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// NVIDIA's collective communication library, loaded when it is needed, and its communicators.
/// Source: NCCL's documentation, "Point-to-point communication" and "Creating a communicator".

#include <memory>

#include "core/mpi.hpp"
#include "device/device.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// Environment variable: path of the library; default: libnccl.so.2, where the loader finds it.
inline constexpr const char* nccl_variable = "DACE_REDIST_NCCL";

/// Messages between the devices of an MPI communicator's ranks, each in the order of a stream.
class NcclCommunicator {
 public:
  /// Collective over `comm`. \throws Error on every rank if a rank has no NCCL, or two ranks have the same device.
  NcclCommunicator(MPI_Comm comm, Device& device);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  bool is_of(const Device& device) const;

  void send(const char* bytes, Index nbytes, int peer, Stream stream);
  void receive(char* bytes, Index nbytes, int peer, Stream stream);

 private:
  std::array<char, 16> device_;
  void* handle_ = nullptr;
};

/// What this thread sends and receives while it lives goes at once, when it ends.
class NcclGroup {
 public:
  NcclGroup();
  /// Ends what end() did not, as a failure came before: a group that stays open would hold up all later ones.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  void end();

 private:
  bool open_ = true;
};

/// Has the communicators that are made from `comm` share one communicator of NCCL with it, as it takes long to make
/// one. Local.
void share_nccl(MPI_Comm comm);

/// The communicator of NCCL for the devices of the ranks of `comm`; made if there is none yet. Collective.
/// \param comm  a copy of one that share_nccl() was called for.
/// \throws Error as NcclCommunicator().
std::shared_ptr<NcclCommunicator> nccl_communicator(MPI_Comm comm, Device& device);

}  // namespace dace_redist
