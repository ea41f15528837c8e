// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages between devices of one node: a kernel of the sender writes into the array of the receiver.
/// Start reading at: PeerTransport.

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/mpi.hpp"
#include "device/packed_messages.hpp"
#include "device/plan_device.hpp"

namespace dace_redist {

/// A receiver's answer to each of its senders in an exchange: the place for their elements.
struct TargetEndpoint {
  /// The elements go into the array, or into a buffer as a packed message; or the receiver's part has failed.
  enum Kind : std::int64_t { array, packed_message, failure };

  DeviceMemoryName memory;
  Kind kind = failure;
  std::int64_t ndim = 0;
  std::array<std::int64_t, max_dims> strides{};  ///< [ndim] of the array, in elements
};

/// Each rank tells those that send to it where its array is. A sender that has heard from all its receivers moves all
/// messages by one kernel, its self copy included, and tells them when that is done. An array that other processes
/// cannot map is received in a buffer, and unpacked there.
///
/// Steps of an exchange: arrays_in_use -> endpoints (sent and awaited) -> writing -> notices (sent and awaited) ->
/// finished.
class PeerTransport {
 public:
  /// Makes the schedule of this rank between ranks of the exchange for target arrays of other ranks.
  using Planner = std::function<RankSchedule(const Layouts& targets)>;

  /// Prepares for local arrays. Local.
  /// \param first_tag  this one and the next are taken.
  /// \param schedule  of this rank, with the messages between ranks of the exchange only.
  /// \param steps  must outlive the transport.
  void set_arrays(PlanDevice& device, MPI_Comm comm, int first_tag, Planner planner, const RankSchedule& schedule,
                  const LocalLayout& target, const ElementSteps& steps);

  void begin(const char* source, char* target);
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
  /// Names this rank's array in the endpoints; without a name for it, the buffer.
  void name_target();
  void write();
  void make_kernels();
  char* address(int rank, const DeviceMemoryName& memory);
  void send_notices();
  void finish();

  PlanDevice* order_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int endpoint_tag_ = 0, notice_tag_ = 0;
  Planner planner_;
  const ElementSteps* steps_ = nullptr;
  LocalLayout target_layout_;
  std::vector<int> receivers_, senders_;  // ranks
  std::vector<Message> receives_;
  std::vector<TargetEndpoint> endpoints_, own_endpoints_;  // [receivers_], [senders_]
  std::vector<TargetEndpoint> known_;                      // those the kernels were made for
  std::vector<char> notices_;                              // [senders_] whether the sender's part has failed
  char own_notice_ = 0;
  std::unique_ptr<CopyKernel> direct_, packed_;
  PackedMessages received_;  // if this rank's array cannot be mapped
  DeviceBuffer buffer_;
  std::map<int, std::vector<Mapped>> mapped_;
  OwnedStream stream_;
  OwnedEvent written_;
  OwnedEvent buffer_unpacked_;  // by the exchange that last used the buffer
  std::vector<MPI_Request> requests_;
  const char* source_ = nullptr;  // of the exchange at hand
  char* target_ = nullptr;
  bool unpacks_ = false;
  Step step_ = Step::finished;
};

}  // namespace dace_redist
