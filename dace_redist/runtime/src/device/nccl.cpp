// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Strategy NCCL: packed messages between devices, by NVIDIA's collective communication library, which is loaded when
/// it is needed. Source: NCCL's documentation, "Point-to-point communication" and "Creating a communicator".

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/agreement.hpp"
#include "device/device_plan.hpp"
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

/// Sends and receives of this thread are started together by end().
class NcclGroup {
 public:
  NcclGroup() { check_nccl(nccl().ncclGroupStart(), "ncclGroupStart"); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  /// Ends the group after a failure, too: an open group would hold up all later ones.
  ~NcclGroup() {
    if (open_) nccl().ncclGroupEnd();
  }

  void end() {
    open_ = false;
    check_nccl(nccl().ncclGroupEnd(), "ncclGroupEnd");
  }

 private:
  bool open_ = true;
};

/// The communicator of NCCL that an MPI communicator shares with its copies; the value of an attribute of all of them.
struct SharedNccl {
  std::atomic<int> references{1};
  std::shared_ptr<NcclCommunicator> communicator;
};

int copy_shared(MPI_Comm /*comm*/, int /*key*/, void* /*extra*/, void* shared, void* copy, int* made) {
  ++static_cast<SharedNccl*>(shared)->references;
  *static_cast<void**>(copy) = shared;
  *made = 1;
  return MPI_SUCCESS;
}

int delete_shared(MPI_Comm /*comm*/, int /*key*/, void* shared, void* /*extra*/) {
  if (--static_cast<SharedNccl*>(shared)->references == 0) delete static_cast<SharedNccl*>(shared);
  return MPI_SUCCESS;
}

int shared_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(copy_shared, delete_shared, &made, nullptr), "MPI_Comm_create_keyval");
    return made;
  }();
  return key;
}

/// Null if share_nccl() was not called for the communicator, or for that it is a copy of.
SharedNccl* shared_nccl(MPI_Comm comm) {
  void* shared = nullptr;
  int exists = 0;
  check(MPI_Comm_get_attr(comm, shared_key(), &shared, &exists), "MPI_Comm_get_attr");
  return exists ? static_cast<SharedNccl*>(shared) : nullptr;
}

/// Has the communicators that are copied from `comm` share one communicator of NCCL with it, as it takes long to make
/// one. Local.
void share_nccl(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || shared_nccl(comm) != nullptr) return;
  auto shared = std::make_unique<SharedNccl>();
  check(MPI_Comm_set_attr(comm, shared_key(), shared.get()), "MPI_Comm_set_attr");
  shared.release();
}

/// The communicator of NCCL for the devices of the ranks of `comm`; made if there is none yet. Collective.
/// \param comm  a copy of one that share_nccl() was called for.
/// \throws Error as NcclCommunicator().
std::shared_ptr<NcclCommunicator> nccl_communicator(MPI_Comm comm, Device& device) {
  std::shared_ptr<NcclCommunicator>& communicator = shared_nccl(comm)->communicator;
  if (lowest_rank(comm, communicator == nullptr || !communicator->is_of(device)) >= 0)
    communicator = std::make_shared<NcclCommunicator>(comm, device);
  return communicator;
}

/// Everything is enqueued in one stream: pack, send and receive, unpack. Nothing waits in main memory, and a message
/// that is contiguous in an array is sent from there, or received there.
class NcclPlan final : public Plan {
 private:
  void prepare() override;
  void connect() override;
  void exchange(const char* source, char* target) override { begin(source, target); }
  void begin(const char* source, char* target) override;
  bool advance() override { return true; }

  void prepare_kernels();

  PlanDevice device_;
  OwnedStream stream_;
  std::shared_ptr<NcclCommunicator> nccl_;
  std::unique_ptr<CopyKernel> self_;  // null without a self copy
  PackedMessages sends_, receives_;
  DeviceBuffer send_buffer_, receive_buffer_;
};

void NcclPlan::prepare() {
  if (!nccl_) return;
  const CurrentDevice current(device_.get());
  prepare_kernels();
}

void NcclPlan::prepare_kernels() {
  Device& device = device_.get();
  std::vector<DeviceCopy> copies;
  for (const StridedBlock& block : schedule().self.blocks) copies.push_back({block, 0, 0});
  self_ = copies.empty() ? nullptr : device.copy_kernel(copies, steps().direct());
  sends_ = PackedMessages(device, Direction::pack, schedule().sends, steps(), true);
  receives_ = PackedMessages(device, Direction::unpack, schedule().receives, steps(), true);
  send_buffer_ = DeviceBuffer(device, sends_.buffer_bytes());
  receive_buffer_ = DeviceBuffer(device, receives_.buffer_bytes());
}

void NcclPlan::connect() {
  if (!description().all_on_device())
    throw Error("strategy NCCL moves between arrays on GPUs, and one of these lies in main memory; take Hierarchical");
  all_or_none(comm(), [&] {
    device_.take(description(), steps());
    const CurrentDevice current(device_.get());
    stream_ = make_stream(device_.get());
    prepare_kernels();
  });
  const CurrentDevice current(device_.get());
  nccl_ = nccl_communicator(comm(), device_.get());
}

void NcclPlan::begin(const char* source, char* target) {
  const CurrentDevice current(device_.get());
  device_.begin(description(), schedule(), source, target, stream());
  device_.check();
  const Stream own = stream_.get();
  device_.get().wait(own, device_.started());
  if (self_) self_->launch({source}, {target}, own);
  sends_.launch(source, send_buffer_.at(0), own);
  NcclGroup group;
  for (const PackedMessages::Part& part : sends_.parts())
    nccl_->send((part.in_array ? source : send_buffer_.at(0)) + part.offset, part.nbytes, part.peer, own);
  for (const PackedMessages::Part& part : receives_.parts())
    nccl_->receive((part.in_array ? target : receive_buffer_.at(0)) + part.offset, part.nbytes, part.peer, own);
  group.end();
  receives_.launch(receive_buffer_.at(0), target, own);
  device_.follow(own);
}

}  // namespace

std::unique_ptr<Plan> make_nccl_plan(const Description& description, MPI_Comm comm) {
  share_nccl(comm);
  return Plan::make<NcclPlan>(description, comm);
}

static const RegisteredStrategy<NcclPlan> nccl_strategy("NCCL", make_nccl_plan);

}  // namespace dace_redist
