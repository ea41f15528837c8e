// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages between devices of one node: a kernel of the sender writes into the array of the receiver.
/// Start reading at: PeerTransport.

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "device/packed_messages.hpp"
#include "device/plan_device.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// A receiver's answer to each of its senders in a transfer: the place for their elements.
struct TargetEndpoint {
  /// The elements go into the array, or into a buffer as a packed message.
  enum Kind : std::int64_t { array, packed_message };

  DeviceMemoryName memory;
  Kind kind = array;
  std::int64_t ndim = 0;
  std::array<std::int64_t, max_dims> strides{};  ///< [ndim] of the array, in elements
};

/// Each rank tells those that send to it where its array is. A sender that has heard from all its receivers moves all
/// messages by one kernel, its self copy included, and tells them when that is done. An array that other processes
/// cannot map is received in a buffer, and unpacked there. So are partial results, in the order of the reduction.
///
/// Steps of a transfer: arrays_in_use -> endpoints (sent and awaited) -> writing -> notices (sent and awaited) ->
/// finished.
class PeerTransport {
 public:
  /// Takes the tags `tag` and `tag + 1`.
  PeerTransport(PlanDevice& device, const Link& link, int tag);

  /// Takes messages between ranks whose devices reach each other, and the self copy. Local.
  void set_messages(Messages messages);
  void begin(const Arrays& arrays);
  /// Does what can be done at once. \return whether that was anything.
  bool progress();
  bool done() const { return step_ == Step::finished; }

 private:
  enum class Step { arrays_in_use, endpoints, writing, notices, finished };

  struct Mapped {
    DeviceMemoryName name;
    MappedMemory start;
  };

  void post(bool sends, void* bytes, std::size_t nbytes, int peer, int tag);
  bool requests_done();

  void send_endpoints();
  /// Names this rank's array in the endpoints, or the buffer.
  void name_target();
  void write();
  void make_kernels();
  char* address(int rank, const DeviceMemoryName& memory);
  void send_notices();
  void finish();

  PlanDevice& order_;
  const Link link_;
  const Tensor& tensor_;
  int endpoint_tag_, notice_tag_;
  Messages messages_;
  std::vector<TargetEndpoint> endpoints_, own_endpoints_;  // [sends], [receives]
  std::vector<TargetEndpoint> known_;                      // those the kernels were made for
  std::unique_ptr<CopyKernel> direct_, packed_;
  PackedMessages received_;  // if this rank's array cannot be mapped, or of partial results
  bool unpacker_made_ = false;
  DeviceBuffer buffer_;
  std::map<int, std::vector<Mapped>> mapped_;
  OwnedStream stream_;
  OwnedEvent written_;
  OwnedEvent buffer_unpacked_;  // by the transfer that last used the buffer

  // Of the transfer at hand:
  std::vector<MPI_Request> requests_;
  const char* source_ = nullptr;
  char* target_ = nullptr;
  bool unpacks_ = false;
  Step step_ = Step::finished;
};

}  // namespace dace_redist
