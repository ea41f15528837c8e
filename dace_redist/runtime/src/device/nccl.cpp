// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Strategy NCCL: packed messages between devices, by NVIDIA's collective communication library, which is loaded when
/// it is needed. Source: NCCL's documentation, "Point-to-point communication" and "Creating a communicator".

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/agreement.hpp"
#include "device/device_transport.hpp"
#include "device/packed_messages.hpp"
#include "device/plan_device.hpp"

namespace dace_redist {
namespace {

/// Environment variable: path of the library; default: libnccl.so.2, where the loader finds it.
constexpr const char* nccl_variable = "DACE_REDIST_NCCL";

/// NCCL's ncclUniqueId.
struct UniqueId {
  char internal[128];
};

constexpr int nccl_int8 = 0;     // ncclDataType_t
constexpr int nccl_success = 0;  // ncclResult_t

/// NCCL's functions, as nccl.h declares them: a communicator is a pointer, results and types are enumerations.
struct Nccl {
  int (*ncclGetUniqueId)(UniqueId* id);
  int (*ncclCommInitRank)(void** communicator, int size, UniqueId id, int rank);
  int (*ncclCommDestroy)(void* communicator);
  int (*ncclCommAbort)(void* communicator);
  int (*ncclGroupStart)();
  int (*ncclGroupEnd)();
  int (*ncclSend)(const void* bytes, std::size_t count, int type, int peer, void* communicator, Stream stream);
  int (*ncclRecv)(void* bytes, std::size_t count, int type, int peer, void* communicator, Stream stream);
  const char* (*ncclGetErrorString)(int result);
};

Nccl load() {
  const char* const given = std::getenv(nccl_variable);
  const char* const path = given == nullptr || *given == '\0' ? "libnccl.so.2" : given;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(text("strategy NCCL needs NVIDIA's NCCL (Debian: libnccl2, pip: nvidia-nccl-cu13; ", nccl_variable,
                     " names the file): ", dlerror()));
  Nccl nccl{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw Error(text(path, " has no ", name, ": NCCL 2.7 or newer is needed"));
  };
  find(nccl.ncclGetUniqueId, "ncclGetUniqueId");
  find(nccl.ncclCommInitRank, "ncclCommInitRank");
  find(nccl.ncclCommDestroy, "ncclCommDestroy");
  find(nccl.ncclCommAbort, "ncclCommAbort");
  find(nccl.ncclGroupStart, "ncclGroupStart");
  find(nccl.ncclGroupEnd, "ncclGroupEnd");
  find(nccl.ncclSend, "ncclSend");
  find(nccl.ncclRecv, "ncclRecv");
  find(nccl.ncclGetErrorString, "ncclGetErrorString");
  return nccl;
}

const Nccl& nccl() {
  static const Nccl functions = load();  // tried again as long as it fails
  return functions;
}

void check_nccl(int result, const char* call) {
  if (result != nccl_success) throw Error(text(call, " failed: ", nccl().ncclGetErrorString(result)));
}

/// \throws Error on every rank if two ranks have the same device, which NCCL does not allow. Collective.
void check_devices_differ(MPI_Comm comm, const std::array<char, 16>& mine, const std::string& name) {
  std::vector<std::array<char, 16>> all(static_cast<std::size_t>(comm_size(comm)));
  check(MPI_Allgather(mine.data(), sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm), "MPI_Allgather");
  for (std::size_t first = 0; first < all.size(); ++first)
    for (std::size_t second = first + 1; second < all.size(); ++second)
      if (all[first] == all[second])
        throw Error(text("strategy NCCL needs a GPU for each rank, but ranks ", first, " and ", second, " share one",
                         comm_rank(comm) == static_cast<int>(first) ? text(" (", name, ")") : std::string(),
                         "; take Hierarchical"));
}

/// Messages between the devices of an MPI communicator's ranks, each in the order of a stream.
class NcclCommunicator {
 public:
  /// Collective over `comm`. \throws Error on every rank if a rank has no NCCL, or two ranks have the same device.
  NcclCommunicator(MPI_Comm comm, Device& device) : device_(device.unique_id()) {
    all_or_none(comm, [] { nccl(); });
    check_devices_differ(comm, device_, device.name());
    UniqueId id{};
    all_or_none(comm, [&] {
      if (comm_rank(comm) == 0) check_nccl(nccl().ncclGetUniqueId(&id), "ncclGetUniqueId");
    });
    check(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm), "MPI_Bcast");
    const int result = nccl().ncclCommInitRank(&handle_, comm_size(comm), id, comm_rank(comm));  // collective, too
    try {
      all_or_none(comm, [&] { check_nccl(result, "ncclCommInitRank"); });
    } catch (...) {
      if (result == nccl_success) nccl().ncclCommAbort(handle_);  // does not wait for ranks that have none
      throw;
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() { nccl().ncclCommDestroy(handle_); }

  bool is_of(const Device& device) const { return device_ == device.unique_id(); }

  /// Starts what `work` sends and receives together. Ends the group of these calls after a failure, too: an open group
  /// would hold up all later ones.
  template <class Work>
  static void together(const Work& work) {
    check_nccl(nccl().ncclGroupStart(), "ncclGroupStart");
    try {
      work();
    } catch (...) {
      nccl().ncclGroupEnd();
      throw;
    }
    check_nccl(nccl().ncclGroupEnd(), "ncclGroupEnd");
  }

  void send(const char* bytes, Index nbytes, int peer, Stream stream) {
    check_nccl(nccl().ncclSend(bytes, static_cast<std::size_t>(nbytes), nccl_int8, peer, handle_, stream), "ncclSend");
  }
  void receive(char* bytes, Index nbytes, int peer, Stream stream) {
    check_nccl(nccl().ncclRecv(bytes, static_cast<std::size_t>(nbytes), nccl_int8, peer, handle_, stream), "ncclRecv");
  }

 private:
  std::array<char, 16> device_;
  void* handle_ = nullptr;
};

using SharedNccl = std::shared_ptr<NcclCommunicator>;

int delete_shared(MPI_Comm /*comm*/, int /*key*/, void* shared, void* /*extra*/) {
  delete static_cast<SharedNccl*>(shared);
  return MPI_SUCCESS;
}

/// The communicator of NCCL for the devices of the ranks of `comm`, whose attribute it is: it takes long to make one.
/// Collective. \throws Error as NcclCommunicator().
SharedNccl nccl_communicator(MPI_Comm comm, Device& device) {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_shared, &made, nullptr), "MPI_Comm_create_keyval");
    return made;
  }();
  void* found = nullptr;
  int exists = 0;
  check(MPI_Comm_get_attr(comm, key, &found, &exists), "MPI_Comm_get_attr");
  if (!exists) {
    found = new SharedNccl;
    check(MPI_Comm_set_attr(comm, key, found), "MPI_Comm_set_attr");
  }
  SharedNccl& shared = *static_cast<SharedNccl*>(found);
  if (lowest_rank(comm, shared == nullptr || !shared->is_of(device)) >= 0)
    shared = std::make_shared<NcclCommunicator>(comm, device);
  return shared;
}

/// Everything is enqueued in one stream: pack, send and receive, unpack. Nothing waits in main memory, and a message
/// that is contiguous in an array is sent from there, or received there.
class NcclTransport final : public Transport {
 public:
  NcclTransport(const Link& link, Messages messages, const TensorProblem& problem, const Stream& caller)
      : comm_(link.comm()), tensor_(*link.tensors[0]), device_(problem, tensor_, messages, caller) {
    const CurrentDevice current(device_.get());
    stream_ = device_.get().make_stream();
    replan(std::move(messages));
  }

  void connect() override {
    const CurrentDevice current(device_.get());
    nccl_ = nccl_communicator(comm_, device_.get());
  }

  void replan(Messages messages) override {
    Device& device = device_.get();
    const CurrentDevice current(device);
    sends_ = PackedMessages(device, Chunk::Side::sent, messages.sends, tensor_, true);
    receives_ = PackedMessages(device, Chunk::Side::received, messages.receives, tensor_, true, &messages.self);
    send_buffer_ = DeviceBuffer(device, sends_.buffer_bytes());
    receive_buffer_ = DeviceBuffer(device, receives_.buffer_bytes());
  }

  void begin(const Arrays& arrays, Pace) override {
    const CurrentDevice current(device_.get());
    const char* const source = arrays.sources[0];
    char* const target = arrays.targets[0];
    device_.begin(arrays);
    const Stream own = stream_.get();
    device_.get().wait(own, device_.started());
    sends_.launch({source}, send_buffer_.at(0), own);
    NcclCommunicator::together([&] {
      for (const PackedMessages::Part& part : sends_.parts())
        nccl_->send((part.in_array ? source : send_buffer_.at(0)) + part.offset, part.nbytes, part.peer, own);
      for (const PackedMessages::Part& part : receives_.parts())
        nccl_->receive((part.in_array ? target : receive_buffer_.at(0)) + part.offset, part.nbytes, part.peer, own);
    });
    receives_.launch({receive_buffer_.at(0), source}, target, own);
    device_.follow(own);
  }

  bool progress() override { return false; }
  bool done() const override { return true; }  // the caller's stream waits

 private:
  MPI_Comm comm_;
  const Tensor& tensor_;
  PlanDevice device_;
  DeviceHandle stream_;
  SharedNccl nccl_;
  PackedMessages sends_, receives_;
  DeviceBuffer send_buffer_, receive_buffer_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl(const Link& link, Messages messages, const TensorProblem& problem,
                                     const Stream& caller) {
  if (problem.source_memory == Memory::host || problem.target_memory == Memory::host)
    throw Error("strategy NCCL moves between arrays on GPUs, and one of these lies in main memory; take Hierarchical");
  return std::make_unique<NcclTransport>(link, std::move(messages), problem, caller);
}

}  // namespace dace_redist
