// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "device/device_transport.hpp"
#include "trace/trace.hpp"

namespace dace_redist {
namespace {

constexpr std::size_t max_mapped = 4;  // allocations of another rank

/// A receiver's answer to each of its senders in a transfer: the place for their elements.
struct TargetEndpoint {
  DeviceMemoryName memory;
  std::int64_t packed = 0;  ///< whether the elements go into a buffer as a packed message, not into the array
  std::int64_t ndim = 0;
  std::array<std::int64_t, max_dims> strides{};  ///< [ndim] of the array, in elements
};

bool have_equal_layouts(const TargetEndpoint& one, const TargetEndpoint& other) {
  return one.packed == other.packed && one.ndim == other.ndim && one.strides == other.strides;
}

/// The places of received messages in a buffer, and the kernels from there to the array.
class ReceivedBuffer {
 public:
  /// \param self  of partial results, the self copy; else null.
  ReceivedBuffer(Device& device, const std::vector<PeerMessage>& messages, const Tensor& tensor,
                 const PeerMessage* self) {
    constexpr Index alignment = 256;  // elements; a message begins where a kernel moves whole words
    constexpr int from_buffer = 0, from_array = 1;
    std::vector<DeviceCopy> copies;
    const auto make_kernel = [&](const ElementStep& step) {
      if (!copies.empty()) kernels_.push_back(std::make_unique<CopyKernel>(device, copies, step));
      copies.clear();
    };
    const auto add_self = [&] {
      if (!self) return;
      for (const Block& block : self->blocks) copies.push_back({block.box, from_array, 0});
      make_kernel(tensor.direct_step(*self));
      self = nullptr;
    };
    Index count = 0;
    for (const PeerMessage& message : messages) {
      if (self && self->step < message.step) add_self();
      offsets_.push_back(count * tensor.steps.message_bytes());
      for (const Block& block : message.blocks) {
        copies.push_back({from_packed(block.box, count), from_buffer, 0});
        count += block.box.count();
      }
      count = ceil_div(count, alignment) * alignment;
      if (tensor.reduces) make_kernel(tensor.unpack_step(message));
    }
    make_kernel(tensor.steps.unpack());
    add_self();
    nbytes_ = count * tensor.steps.message_bytes();
  }

  const std::vector<Index>& offsets() const { return offsets_; }  ///< [messages] bytes before each
  Index nbytes() const { return nbytes_; }

  /// Enqueues the copies of all messages; partial results in the order of the reduction.
  /// \param sources  the buffer, and the array that the self copy reads.
  void launch(const std::vector<const char*>& sources, char* target, Stream stream) const {
    for (const auto& kernel : kernels_) kernel->launch(sources, {target}, stream);
  }

 private:
  std::vector<Index> offsets_;
  Index nbytes_ = 0;
  std::vector<std::unique_ptr<CopyKernel>> kernels_;
};

class PeerTransport final : public Transport {
 public:
  PeerTransport(PlanDevice& device, const Link& link, int tag, Messages messages)
      : order_(device),
        link_(link),
        tensor_(*link.tensors[0]),
        tag_(tag),
        stream_(device.get().make_stream()),
        written_(device.get().make_event()),
        buffer_unpacked_(device.get().make_event()) {
    replan(std::move(messages));
  }

  void replan(Messages messages) override {
    messages_ = std::move(messages);
    endpoints_.resize(messages_.sends.size());
    own_endpoints_.resize(messages_.receives.size());
    known_.clear();
    direct_.reset();
    packed_.reset();
    received_.reset();
    requests_.reserve(2 * (messages_.sends.size() + messages_.receives.size()));
  }

  void begin(const Arrays& arrays, Pace) override {
    source_ = arrays.sources[0];
    target_ = arrays.targets[0];
    step_ = Step::arrays_in_use;
    unpacks_ = false;
    requests_.clear();
    order_.get().wait(stream_.get(), order_.started());
    for (std::size_t r = 0; r < endpoints_.size(); ++r)
      post(false, &endpoints_[r], sizeof(TargetEndpoint), messages_.sends[r].peer, tag_);
  }

  bool progress() override {
    Device& device = order_.get();
    if (step_ == Step::arrays_in_use && device.completed(order_.started()) && device.completed(buffer_unpacked_.get()))
      send_endpoints();
    else if (step_ == Step::endpoints && requests_done())
      write();
    else if (step_ == Step::writing && device.completed(written_.get()))
      send_notices();
    else if (step_ == Step::notices && requests_done())
      finish();
    else
      return false;
    step_ = static_cast<Step>(static_cast<int>(step_) + 1);
    return true;
  }

  bool done() const override { return step_ == Step::finished; }

  Leaving leave() override {
    if (step_ >= Step::writing && !order_.get().completed(written_.get())) return Leaving::receiving;
    const bool lends = step_ > Step::arrays_in_use && step_ < Step::finished && !unpacks_;
    for (std::size_t s = 0; lends && s < messages_.receives.size(); ++s)
      if (!has_written(s) && !link_.context.has_left(link_.owner, messages_.receives[s].peer)) return Leaving::lending;
    return Leaving::left;
  }

 private:
  /// Endpoints are sent and awaited, and so are notices.
  enum class Step : int { arrays_in_use, endpoints, writing, notices, finished };

  struct Mapped {
    DeviceMemoryName name;
    DeviceHandle start;
  };

  void post(bool sends, void* bytes, std::size_t nbytes, int peer, int tag) {
    const int count = static_cast<int>(nbytes);
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    if (sends)
      check(MPI_Isend(bytes, count, MPI_BYTE, peer, tag, link_.comm(), &request), "MPI_Isend");
    else
      check(MPI_Irecv(bytes, count, MPI_BYTE, peer, tag, link_.comm(), &request), "MPI_Irecv");
  }

  bool requests_done() {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done) requests_.clear();
    return done != 0;
  }

  /// Whether a sender's notice is here.
  bool has_written(std::size_t sender) {
    int arrived = 0;
    if (step_ == Step::notices)
      check(MPI_Request_get_status(requests_[sender], &arrived, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    else
      check(MPI_Iprobe(messages_.receives[sender].peer, tag_ + 1, link_.comm(), &arrived, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
    return arrived != 0;
  }

  void send_endpoints() {
    if (tensor_.reduces || !own_endpoints_.empty()) name_target();
    for (std::size_t s = 0; s < own_endpoints_.size(); ++s)
      post(true, &own_endpoints_[s], sizeof(TargetEndpoint), messages_.receives[s].peer, tag_);
  }

  void name_target() {
    Device& device = order_.get();
    TargetEndpoint endpoint;
    const std::vector<Index>& strides = tensor_.target.strides;
    endpoint.ndim = static_cast<std::int64_t>(strides.size());
    std::copy(strides.begin(), strides.end(), endpoint.strides.begin());
    unpacks_ = tensor_.reduces || !device.name_memory(target_, endpoint.memory);
    endpoint.packed = unpacks_;
    std::fill(own_endpoints_.begin(), own_endpoints_.end(), endpoint);
    if (!unpacks_) return;
    if (!received_) {
      received_.emplace(device, messages_.receives, tensor_, tensor_.reduces ? &messages_.self : nullptr);
      if (!buffer_.at(0)) buffer_ = DeviceBuffer(device, received_->nbytes());  // strides do not change its size
    }
    if (own_endpoints_.empty()) return;
    if (!device.name_memory(buffer_.at(0), endpoint.memory))
      throw Error(text("memory of ", device.name(), " cannot be mapped by other ranks any more"));
    for (std::size_t s = 0; s < own_endpoints_.size(); ++s) {
      own_endpoints_[s].memory = endpoint.memory;
      own_endpoints_[s].memory.offset += received_->offsets()[s];
    }
  }

  /// Moves the messages to other ranks, and the self copy.
  void write() {
    const bool known = direct_ && known_.size() == endpoints_.size() &&
                       std::equal(endpoints_.begin(), endpoints_.end(), known_.begin(), have_equal_layouts);
    if (!known) make_kernels();
    std::vector<char*> targets{target_};
    for (std::size_t r = 0; r < endpoints_.size(); ++r)
      targets.push_back(address(messages_.sends[r].peer, endpoints_[r].memory));
    const trace::Span span("copy");
    direct_->launch({source_}, targets, stream_.get());
    if (packed_) packed_->launch({source_}, targets, stream_.get());
    order_.get().record(written_.get(), stream_.get());
  }

  /// Kernels for the arrays that the endpoints describe. Target 0 is this rank's own, 1 + r that of receiver r.
  void make_kernels() {
    Layouts layouts;
    for (std::size_t r = 0; r < endpoints_.size(); ++r) {
      const auto strides = endpoints_[r].strides.begin();
      layouts[messages_.sends[r].peer].strides.assign(strides, strides + endpoints_[r].ndim);
    }
    const Messages planned = link_.plan_messages({{}}, {layouts});
    std::vector<DeviceCopy> direct, packed;
    if (!tensor_.reduces)
      for (const Block& block : planned.self.blocks) direct.push_back({block.box, 0, 0});
    for (std::size_t r = 0; r < endpoints_.size(); ++r) {
      const int target = 1 + static_cast<int>(r);
      const auto message = std::find_if(planned.sends.begin(), planned.sends.end(),
                                        [&](const PeerMessage& one) { return one.peer == messages_.sends[r].peer; });
      Index displacement = 0;
      for (const Block& block : message->blocks) {
        if (endpoints_[r].packed)
          packed.push_back({to_packed(block.box, displacement), 0, target});
        else
          direct.push_back({block.box, 0, target});
        displacement += block.box.count();
      }
    }
    Device& device = order_.get();
    direct_ = std::make_unique<CopyKernel>(device, direct, tensor_.steps.direct());
    packed_ = packed.empty() ? nullptr : std::make_unique<CopyKernel>(device, packed, tensor_.steps.pack());
    known_ = endpoints_;
  }

  /// The address of another rank's memory here; it stays mapped as long as few others are.
  char* address(int rank, const DeviceMemoryName& memory) {
    std::vector<Mapped>& mapped = mapped_[rank];
    const auto entry = std::find_if(mapped.begin(), mapped.end(), [&](const Mapped& other) {
      return other.name.handle == memory.handle && other.name.process == memory.process;
    });
    if (entry != mapped.end() && entry->name.allocation == memory.allocation)
      return static_cast<char*>(entry->start.get()) + memory.offset;
    if (entry != mapped.end()) mapped.erase(entry);
    if (mapped.size() == max_mapped) mapped.erase(mapped.begin());
    mapped.push_back({memory, order_.get().map(memory)});
    return static_cast<char*>(mapped.back().start.get()) + memory.offset;
  }

  void send_notices() {
    for (const PeerMessage& message : messages_.receives) post(false, nullptr, 0, message.peer, tag_ + 1);
    for (const PeerMessage& message : messages_.sends) post(true, nullptr, 0, message.peer, tag_ + 1);
  }

  void finish() {
    if (!unpacks_) return;  // everything else has completed
    received_->launch({buffer_.at(0), source_}, target_, stream_.get());
    order_.get().record(buffer_unpacked_.get(), stream_.get());
    order_.follow(stream_.get());
  }

  PlanDevice& order_;
  const Link link_;
  const Tensor& tensor_;
  int tag_;  // of endpoints; that of notices follows
  Messages messages_;
  std::vector<TargetEndpoint> endpoints_, own_endpoints_;  // [sends], [receives]
  std::vector<TargetEndpoint> known_;                      // those the kernels were made for
  std::unique_ptr<CopyKernel> direct_, packed_;
  std::optional<ReceivedBuffer> received_;  // if this rank's array cannot be mapped, or of partial results
  DeviceBuffer buffer_;
  std::map<int, std::vector<Mapped>> mapped_;
  DeviceHandle stream_, written_;
  DeviceHandle buffer_unpacked_;  // by the transfer that last used the buffer

  // Of the transfer at hand:
  std::vector<MPI_Request> requests_;
  const char* source_ = nullptr;
  char* target_ = nullptr;
  bool unpacks_ = false;
  Step step_ = Step::finished;
};

}  // namespace

std::unique_ptr<Transport> make_peer(PlanDevice& device, const Link& link, int tag, Messages messages) {
  return std::make_unique<PeerTransport>(device, link, tag, std::move(messages));
}

}  // namespace dace_redist
