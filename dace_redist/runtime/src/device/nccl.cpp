// SPDX-License-Identifier: BSD-3-Clause
#include "device/nccl.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/agreement.hpp"

namespace dace_redist {
namespace {

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

template <class Function>
void find(void* library, const char* path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw Error(text(path, " has no ", name, ": NCCL 2.7 or newer is needed"));
}

Nccl load() {
  const char* const given = std::getenv(nccl_variable);
  const char* const path = given == nullptr || *given == '\0' ? "libnccl.so.2" : given;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(text("strategy NCCL needs NVIDIA's NCCL (Debian: libnccl2, pip: nvidia-nccl-cu13; ", nccl_variable,
                     " names the file): ", dlerror()));
  Nccl nccl{};
  const auto find_all = [&](auto& function, const char* name) { find(library, path, name, function); };
  find_all(nccl.ncclGetUniqueId, "ncclGetUniqueId");
  find_all(nccl.ncclCommInitRank, "ncclCommInitRank");
  find_all(nccl.ncclCommDestroy, "ncclCommDestroy");
  find_all(nccl.ncclCommAbort, "ncclCommAbort");
  find_all(nccl.ncclGroupStart, "ncclGroupStart");
  find_all(nccl.ncclGroupEnd, "ncclGroupEnd");
  find_all(nccl.ncclSend, "ncclSend");
  find_all(nccl.ncclRecv, "ncclRecv");
  find_all(nccl.ncclGetErrorString, "ncclGetErrorString");
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

using Shared = std::shared_ptr<NcclCommunicator>;

/// The communicator of NCCL that an MPI communicator shares with its copies: a pointer to it, which all of them have.
using Slot = std::shared_ptr<Shared>;

int copy_slot(MPI_Comm /*comm*/, int /*key*/, void* /*extra*/, void* slot, void* copy, int* made) {
  *static_cast<void**>(copy) = new Slot(*static_cast<Slot*>(slot));
  *made = 1;
  return MPI_SUCCESS;
}

int delete_slot(MPI_Comm /*comm*/, int /*key*/, void* slot, void* /*extra*/) {
  delete static_cast<Slot*>(slot);
  return MPI_SUCCESS;
}

int slot_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(copy_slot, delete_slot, &made, nullptr), "MPI_Comm_create_keyval");
    return made;
  }();
  return key;
}

Slot* slot_of(MPI_Comm comm) {
  void* slot = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(comm, slot_key(), &slot, &found), "MPI_Comm_get_attr");
  return found ? static_cast<Slot*>(slot) : nullptr;
}

}  // namespace

NcclCommunicator::NcclCommunicator(MPI_Comm comm, Device& device) : device_(device.unique_id()) {
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

NcclCommunicator::~NcclCommunicator() {
  if (handle_ != nullptr) nccl().ncclCommDestroy(handle_);
}

bool NcclCommunicator::is_of(const Device& device) const { return device_ == device.unique_id(); }

void NcclCommunicator::send(const char* bytes, Index nbytes, int peer, Stream stream) {
  check_nccl(nccl().ncclSend(bytes, static_cast<std::size_t>(nbytes), nccl_int8, peer, handle_, stream), "ncclSend");
}

void NcclCommunicator::receive(char* bytes, Index nbytes, int peer, Stream stream) {
  check_nccl(nccl().ncclRecv(bytes, static_cast<std::size_t>(nbytes), nccl_int8, peer, handle_, stream), "ncclRecv");
}

NcclGroup::NcclGroup() { check_nccl(nccl().ncclGroupStart(), "ncclGroupStart"); }

NcclGroup::~NcclGroup() {
  if (open_) nccl().ncclGroupEnd();
}

void NcclGroup::end() {
  open_ = false;
  check_nccl(nccl().ncclGroupEnd(), "ncclGroupEnd");
}

void share_nccl(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || slot_of(comm) != nullptr) return;
  check(MPI_Comm_set_attr(comm, slot_key(), new Slot(std::make_shared<Shared>())), "MPI_Comm_set_attr");
}

std::shared_ptr<NcclCommunicator> nccl_communicator(MPI_Comm comm, Device& device) {
  Shared& shared = **slot_of(comm);
  if (lowest_rank(comm, shared == nullptr || !shared->is_of(device)) >= 0)
    shared = std::make_shared<NcclCommunicator>(comm, device);
  return shared;
}

}  // namespace dace_redist
