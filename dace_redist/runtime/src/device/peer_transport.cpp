// SPDX-License-Identifier: BSD-3-Clause
#include "device/peer_transport.hpp"

#include <algorithm>

namespace dace_redist {
namespace {

constexpr std::size_t max_mapped = 4;  // allocations of another rank

bool have_equal_layouts(const TargetEndpoint& one, const TargetEndpoint& other) {
  return one.kind == other.kind && one.ndim == other.ndim && one.strides == other.strides;
}

}  // namespace

void PeerTransport::set_arrays(PlanDevice& device, MPI_Comm comm, int first_tag, Planner planner,
                               const RankSchedule& schedule, const LocalLayout& target, const ElementSteps& steps) {
  order_ = &device;
  comm_ = comm;
  endpoint_tag_ = first_tag;
  notice_tag_ = first_tag + 1;
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
  notices_.resize(senders_.size());
  known_.clear();
  direct_.reset();
  packed_.reset();
  received_ = {};
  requests_.reserve(2 * (receivers_.size() + senders_.size()));
  if (stream_.get()) return;
  stream_ = make_stream(device.get());
  written_ = make_event(device.get());
  buffer_unpacked_ = make_event(device.get());
}

void PeerTransport::begin(const char* source, char* target) {
  source_ = source;
  target_ = target;
  step_ = Step::arrays_in_use;
  unpacks_ = false;
  requests_.clear();
  order_->attempt([&] { order_->get().wait(stream_.get(), order_->started()); });
  for (std::size_t r = 0; r < receivers_.size(); ++r)
    post(false, &endpoints_[r], sizeof(TargetEndpoint), receivers_[r], endpoint_tag_);
}

bool PeerTransport::progress() {
  if (done()) return false;
  Device& device = order_->get();
  switch (step_) {
    case Step::arrays_in_use:
      if (!order_->failed() && !(device.completed(order_->started()) && device.completed(buffer_unpacked_.get())))
        return false;
      send_endpoints();
      step_ = Step::endpoints;
      return true;
    case Step::endpoints:
      if (!requests_done()) return false;
      write();
      step_ = Step::writing;
      return true;
    case Step::writing:
      if (!order_->failed() && !device.completed(written_.get())) return false;
      send_notices();
      step_ = Step::notices;
      return true;
    case Step::notices:
      if (!requests_done()) return false;
      finish();
      step_ = Step::finished;
      return true;
    case Step::finished:
      break;
  }
  return false;
}

void PeerTransport::post(bool sends, void* bytes, std::size_t nbytes, int peer, int tag) {
  const int count = static_cast<int>(nbytes);
  MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
  if (sends)
    check(MPI_Isend(bytes, count, MPI_BYTE, peer, tag, comm_, &request), "MPI_Isend");
  else
    check(MPI_Irecv(bytes, count, MPI_BYTE, peer, tag, comm_, &request), "MPI_Irecv");
}

bool PeerTransport::requests_done() {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (done) requests_.clear();
  return done != 0;
}

void PeerTransport::send_endpoints() {
  std::fill(own_endpoints_.begin(), own_endpoints_.end(), TargetEndpoint{});
  if (!senders_.empty() && !order_->attempt([&] { name_target(); }))
    std::fill(own_endpoints_.begin(), own_endpoints_.end(), TargetEndpoint{});
  for (std::size_t s = 0; s < senders_.size(); ++s)
    post(true, &own_endpoints_[s], sizeof(TargetEndpoint), senders_[s], endpoint_tag_);
}

void PeerTransport::name_target() {
  Device& device = order_->get();
  TargetEndpoint endpoint;
  endpoint.ndim = static_cast<std::int64_t>(target_layout_.strides.size());
  std::copy(target_layout_.strides.begin(), target_layout_.strides.end(), endpoint.strides.begin());
  unpacks_ = !device.name_memory(target_, endpoint.memory);
  endpoint.kind = unpacks_ ? TargetEndpoint::packed_message : TargetEndpoint::array;
  std::fill(own_endpoints_.begin(), own_endpoints_.end(), endpoint);
  if (!unpacks_) return;
  if (received_.parts().empty()) {
    received_ = PackedMessages(device, Direction::unpack, receives_, *steps_, false);
    if (!buffer_.at(0)) buffer_ = DeviceBuffer(device, received_.buffer_bytes());  // strides do not change its size
  }
  if (!device.name_memory(buffer_.at(0), endpoint.memory))
    throw Error(text("memory of ", device.name(), " cannot be mapped by other ranks any more"));
  for (std::size_t s = 0; s < senders_.size(); ++s) {
    own_endpoints_[s].memory = endpoint.memory;
    own_endpoints_[s].memory.offset += received_.parts()[s].offset;
  }
}

/// Moves the messages to other ranks, and the self copy.
void PeerTransport::write() {
  for (std::size_t r = 0; r < receivers_.size(); ++r)
    if (endpoints_[r].kind == TargetEndpoint::failure) order_->fail_with(receivers_[r]);
  order_->attempt([&] {
    const bool known = direct_ && known_.size() == endpoints_.size() &&
                       std::equal(endpoints_.begin(), endpoints_.end(), known_.begin(), have_equal_layouts);
    if (!known) make_kernels();
    std::vector<char*> targets{target_};
    for (std::size_t r = 0; r < receivers_.size(); ++r) targets.push_back(address(receivers_[r], endpoints_[r].memory));
    const trace::Span span("copy");
    direct_->launch({source_}, targets, stream_.get());
    if (packed_) packed_->launch({source_}, targets, stream_.get());
    order_->get().record(written_.get(), stream_.get());
  });
}

/// Kernels for the arrays that the endpoints describe. Target 0 is this rank's own, 1 + r that of receiver r.
void PeerTransport::make_kernels() {
  Layouts layouts;
  for (std::size_t r = 0; r < receivers_.size(); ++r)
    layouts[receivers_[r]].strides.assign(endpoints_[r].strides.begin(),
                                          endpoints_[r].strides.begin() + endpoints_[r].ndim);
  const RankSchedule schedule = planner_(layouts);
  std::vector<DeviceCopy> direct, packed;
  for (const StridedBlock& block : schedule.self.blocks) direct.push_back({block, 0, 0});
  for (std::size_t r = 0; r < receivers_.size(); ++r) {
    const int target = 1 + static_cast<int>(r);
    const std::vector<StridedBlock>& blocks = schedule.sends[r].blocks;
    if (endpoints_[r].kind == TargetEndpoint::packed_message)
      append_copies(Direction::pack, blocks, 0, target, packed);
    else
      for (const StridedBlock& block : blocks) direct.push_back({block, 0, target});
  }
  Device& device = order_->get();
  direct_ = device.copy_kernel(direct, steps_->direct());
  packed_ = packed.empty() ? nullptr : device.copy_kernel(packed, steps_->pack());
  known_ = endpoints_;
}

/// The address of another rank's memory here; it stays mapped as long as few others are.
char* PeerTransport::address(int rank, const DeviceMemoryName& memory) {
  std::vector<Mapped>& mapped = mapped_[rank];
  const auto entry = std::find_if(mapped.begin(), mapped.end(), [&](const Mapped& other) {
    return other.name.handle == memory.handle && other.name.process == memory.process;
  });
  if (entry != mapped.end() && entry->name.allocation == memory.allocation) return entry->start.get() + memory.offset;
  if (entry != mapped.end()) mapped.erase(entry);
  if (mapped.size() == max_mapped) mapped.erase(mapped.begin());
  mapped.push_back({memory, {order_->get(), order_->get().map(memory)}});
  return mapped.back().start.get() + memory.offset;
}

void PeerTransport::send_notices() {
  own_notice_ = order_->failed();
  for (std::size_t s = 0; s < senders_.size(); ++s) post(false, &notices_[s], 1, senders_[s], notice_tag_);
  for (const int receiver : receivers_) post(true, &own_notice_, 1, receiver, notice_tag_);
}

void PeerTransport::finish() {
  for (std::size_t s = 0; s < senders_.size(); ++s)
    if (notices_[s]) order_->fail_with(senders_[s]);
  if (!unpacks_) return;  // everything else has completed
  order_->attempt([&] {
    received_.launch(buffer_.at(0), target_, stream_.get());
    order_->get().record(buffer_unpacked_.get(), stream_.get());
    order_->follow(stream_.get());
  });
}

}  // namespace dace_redist
