// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages between devices of one node: a kernel of the sender writes into the array of the receiver.
/// Start reading at: PeerExchange.

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/mpi.hpp"
#include "device/packed_messages.hpp"

namespace dace_redist {

/// What a receiver tells each of its senders in every exchange: where it wants its elements, and that they may come.
struct TargetEndpoint {
  DeviceMemoryName memory;
  std::int64_t packed = 0;  ///< whether they go there as a packed message, or into the array
  std::int64_t ndim = 0;
  std::array<std::int64_t, max_dims> strides{};  ///< [ndim] of the array, in elements
};

/// Each rank tells those that send to it where its array is; a sender that has heard from all its receivers moves
/// everything by one kernel, its own part included, and tells them when that is done. An array that other processes
/// cannot map is received in a buffer, and unpacked there.
class PeerExchange {
 public:
  /// Makes the schedule of this rank between ranks of the exchange for target arrays of other ranks.
  using Planner = std::function<RankSchedule(const Layouts& targets)>;

  /// Local.
  /// \param schedule  of this rank, with the messages between ranks of the exchange only.
  void prepare(Device& device, MPI_Comm comm, int first_tag, Planner planner, const RankSchedule& schedule,
               const LocalLayout& target, const ElementSteps& steps) {
    device_ = &device;
    comm_ = comm;
    endpoint_tag_ = first_tag;
    done_tag_ = first_tag + 1;
    planner_ = std::move(planner);
    steps_ = &steps;
    target_layout_ = target;
    receivers_.clear();
    senders_.clear();
    for (const Message& message : schedule.sends) receivers_.push_back(static_cast<int>(message.peer));
    for (const Message& message : schedule.receives) senders_.push_back(static_cast<int>(message.peer));
    receives_ = schedule.receives;
    endpoints_.resize(receivers_.size());
    own_endpoints_.resize(senders_.size());
    known_.clear();
    direct_.reset();
    packed_.reset();
    received_ = {};
    if (!stream_.get()) {
      stream_ = make_stream(device);
      written_ = make_event(device);
      buffer_unpacked_ = make_event(device);
    }
    requests_.reserve(2 * (receivers_.size() + senders_.size()));
  }

  /// \param started  what neither array may be used before.
  void begin(const char* source, char* target, Event started) {
    source_ = source;
    target_ = target;
    started_ = started;
    step_ = Step::arrays_in_use;
    unpacks_ = false;
    device_->wait(stream_.get(), started);
    requests_.clear();
    for (std::size_t r = 0; r < receivers_.size(); ++r)
      check(MPI_Irecv(&endpoints_[r], sizeof(TargetEndpoint), MPI_BYTE, receivers_[r], endpoint_tag_, comm_,
                      &requests_.emplace_back()),
            "MPI_Irecv");
  }

  bool finished() const { return step_ == Step::finished; }

  /// What `caller` gets from now on runs after what this exchange did.
  void finish(Stream caller) {
    if (unpacks_) device_->wait(caller, buffer_unpacked_.get());  // everything else has completed
  }

  /// Does what can be done now; false if that was nothing.
  bool progress() {
    switch (step_) {
      case Step::arrays_in_use:
        if (!device_->completed(started_) || !device_->completed(buffer_unpacked_.get())) return false;
        send_endpoints();
        step_ = Step::endpoints;
        return true;
      case Step::endpoints:
        if (!all_done()) return false;
        write();
        step_ = Step::writing;
        return true;
      case Step::writing:
        if (!device_->completed(written_.get())) return false;
        send_done();
        step_ = Step::done;
        return true;
      case Step::done:
        if (!all_done()) return false;
        unpack();
        step_ = Step::finished;
        return true;
      case Step::finished:
        break;
    }
    return false;
  }

 private:
  enum class Step { arrays_in_use, endpoints, writing, done, finished };

  bool all_done() {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done) requests_.clear();
    return done != 0;
  }

  void send_endpoints() {
    TargetEndpoint endpoint;
    endpoint.ndim = static_cast<std::int64_t>(target_layout_.strides.size());
    std::copy(target_layout_.strides.begin(), target_layout_.strides.end(), endpoint.strides.begin());
    const bool mapped = senders_.empty() || device_->name_memory(target_, endpoint.memory);
    for (std::size_t s = 0; s < senders_.size(); ++s) {
      if (!mapped) {
        name_buffer(endpoint);
        endpoint.memory.offset += received_.parts()[s].offset;
      }
      own_endpoints_[s] = endpoint;
      check(MPI_Isend(&own_endpoints_[s], sizeof(TargetEndpoint), MPI_BYTE, senders_[s], endpoint_tag_, comm_,
                      &requests_.emplace_back()),
            "MPI_Isend");
    }
    receives_packed_ = !mapped;
  }

  void name_buffer(TargetEndpoint& endpoint) {
    if (received_.parts().empty()) {
      received_ = PackedMessages(*device_, Direction::unpack, receives_, *steps_, false);
      if (!buffer_.at(0)) buffer_ = DeviceBuffer(*device_, received_.buffer_bytes());  // the same for other strides
    }
    endpoint.packed = 1;
    if (!device_->name_memory(buffer_.at(0), endpoint.memory))
      throw Error(text("memory of ", device_->name(), " cannot be mapped by other ranks any more"));
  }

  /// Moves what goes to other ranks, and what stays.
  void write() {
    if (known_.size() != endpoints_.size() ||
        !std::equal(endpoints_.begin(), endpoints_.end(), known_.begin(), same_layout) || !direct_)
      make_kernels();
    std::vector<char*> targets{target_};
    for (std::size_t r = 0; r < receivers_.size(); ++r) targets.push_back(address(receivers_[r], endpoints_[r].memory));
    const trace::Span span("copy");
    direct_->launch({source_}, targets, stream_.get());
    if (packed_) packed_->launch({source_}, targets, stream_.get());
    device_->record(written_.get(), stream_.get());
  }

  static bool same_layout(const TargetEndpoint& one, const TargetEndpoint& other) {
    return one.packed == other.packed && one.ndim == other.ndim && one.strides == other.strides;
  }

  /// Kernels for the arrays that the endpoints describe. Target 0 is this rank's own, 1 + r that of receiver r.
  void make_kernels() {
    Layouts layouts;
    for (std::size_t r = 0; r < receivers_.size(); ++r)
      layouts[receivers_[r]].strides.assign(endpoints_[r].strides.begin(),
                                            endpoints_[r].strides.begin() + endpoints_[r].ndim);
    const RankSchedule schedule = planner_(layouts);
    std::vector<DeviceCopy> direct, packed;
    for (const StridedBlock& block : schedule.self.blocks) direct.push_back({block, 0, 0});
    for (std::size_t r = 0; r < receivers_.size(); ++r) {
      Index displacement = 0;
      for (const StridedBlock& block : schedule.sends[r].blocks) {
        const int target = 1 + static_cast<int>(r);
        if (endpoints_[r].packed)
          packed.push_back({to_packed(block, displacement), 0, target});
        else
          direct.push_back({block, 0, target});
        displacement += block.count();
      }
    }
    direct_ = device_->copy_kernel(direct, steps_->direct());
    packed_ = packed.empty() ? nullptr : device_->copy_kernel(packed, steps_->pack());
    known_ = endpoints_;
  }

  /// The address of another rank's memory here; it stays mapped as long as few others are.
  char* address(int rank, const DeviceMemoryName& memory) {
    std::vector<Mapped>& mapped = mapped_[rank];
    const auto same = [&](const Mapped& other) {
      return other.name.handle == memory.handle && other.name.process == memory.process;
    };
    const auto found = std::find_if(mapped.begin(), mapped.end(), same);
    if (found != mapped.end() && found->name.allocation == memory.allocation) return found->start.get() + memory.offset;
    if (found != mapped.end()) mapped.erase(found);
    if (mapped.size() == most_mapped) mapped.erase(mapped.begin());
    mapped.push_back({memory, {*device_, device_->map(memory)}});
    return mapped.back().start.get() + memory.offset;
  }

  void send_done() {
    for (const int sender : senders_)
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, sender, done_tag_, comm_, &requests_.emplace_back()), "MPI_Irecv");
    for (const int receiver : receivers_)
      check(MPI_Isend(nullptr, 0, MPI_BYTE, receiver, done_tag_, comm_, &requests_.emplace_back()), "MPI_Isend");
  }

  void unpack() {
    unpacks_ = receives_packed_ && !senders_.empty();
    if (!unpacks_) return;
    received_.launch(buffer_.at(0), target_, stream_.get());
    device_->record(buffer_unpacked_.get(), stream_.get());
  }

  struct Mapped {
    DeviceMemoryName name;
    MappedMemory start;
  };

  static constexpr std::size_t most_mapped = 4;  // allocations of another rank

  Device* device_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int endpoint_tag_ = 0, done_tag_ = 0;
  Planner planner_;
  const ElementSteps* steps_ = nullptr;
  LocalLayout target_layout_;
  std::vector<int> receivers_, senders_;  // ranks
  std::vector<Message> receives_;
  std::vector<TargetEndpoint> endpoints_, own_endpoints_;  // [receivers_], [senders_]
  std::vector<TargetEndpoint> known_;                      // those the kernels were made for
  std::unique_ptr<CopyKernel> direct_, packed_;
  PackedMessages received_;  // if this rank's array cannot be mapped
  bool receives_packed_ = false, unpacks_ = false;
  DeviceBuffer buffer_;
  std::map<int, std::vector<Mapped>> mapped_;
  OwnedStream stream_;
  OwnedEvent written_;
  OwnedEvent buffer_unpacked_;  // last, by whichever exchange
  std::vector<MPI_Request> requests_;
  const char* source_ = nullptr;  // of the exchange at hand
  char* target_ = nullptr;
  Event started_ = nullptr;
  Step step_ = Step::finished;
};

}  // namespace dace_redist
