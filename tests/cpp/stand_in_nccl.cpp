// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The functions of NCCL that the package calls, between processes of one machine whose device is main memory: messages
/// are files, in a folder below TMPDIR. STAND_IN_NCCL_FAILS names a function that fails.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using dace_redist::current_device;

struct UniqueId {
  char folder[128];
};

struct Communicator {
  std::filesystem::path folder;
  int size, rank;
  std::map<int, int> sent, received;  // messages so far, by rank
};

struct Message {
  bool send;
  char* bytes;
  std::size_t nbytes;
  int peer;
  Communicator* communicator;
  dace_redist::Stream stream;
};

std::vector<Message> group;
int open = 0;         // groups, one in the other
bool failed = false;  // something in the group

enum Result { success, internal_error = 3, invalid_usage = 5 };

bool fails(const char* function) {
  const char* const chosen = std::getenv("STAND_IN_NCCL_FAILS");
  return chosen != nullptr && std::strcmp(chosen, function) == 0;
}

std::filesystem::path file(const Communicator& communicator, int source, int target, int number) {
  return communicator.folder / (std::to_string(source) + "-" + std::to_string(target) + "-" + std::to_string(number));
}

void send(const Message& message) {
  Communicator& communicator = *message.communicator;
  const auto path = file(communicator, communicator.rank, message.peer, communicator.sent[message.peer]++);
  const auto unfinished = path.string() + ".part";
  std::ofstream(unfinished, std::ios::binary).write(message.bytes, static_cast<std::streamsize>(message.nbytes));
  std::filesystem::rename(unfinished, path);
}

bool receive(const Message& message) {
  Communicator& communicator = *message.communicator;
  const auto path = file(communicator, message.peer, communicator.rank, communicator.received[message.peer]++);
  for (int waited = 0; !std::filesystem::exists(path); ++waited) {
    if (waited == 60000) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (std::filesystem::file_size(path) != message.nbytes) return false;
  std::ifstream(path, std::ios::binary).read(message.bytes, static_cast<std::streamsize>(message.nbytes));
  std::filesystem::remove(path);
  return true;
}

}  // namespace

EXPORTED int ncclGetUniqueId(UniqueId* id) {
  if (fails("ncclGetUniqueId")) return internal_error;
  const char* const parent = std::getenv("TMPDIR");
  std::snprintf(id->folder, sizeof id->folder, "%s/stand-in-nccl-XXXXXX", parent == nullptr ? "/tmp" : parent);
  return mkdtemp(id->folder) == nullptr ? internal_error : success;
}

EXPORTED int ncclCommInitRank(void** communicator, int size, UniqueId id, int rank) {
  if (fails("ncclCommInitRank")) return internal_error;
  *communicator = new Communicator{id.folder, size, rank, {}, {}};
  return success;
}

EXPORTED int ncclCommDestroy(void* communicator) {
  auto* const owned = static_cast<Communicator*>(communicator);
  std::error_code still_in_use;
  std::filesystem::remove(owned->folder, still_in_use);
  delete owned;
  return success;
}

EXPORTED int ncclCommAbort(void* communicator) { return ncclCommDestroy(communicator); }

EXPORTED int ncclGroupStart() {
  ++open;
  return success;
}

EXPORTED int ncclSend(const void* bytes, std::size_t count, int type, int peer, void* communicator,
                      dace_redist::Stream stream) {
  if (fails("ncclSend")) {
    failed = true;
    return internal_error;
  }
  auto* const of = static_cast<Communicator*>(communicator);
  if (open == 0 || type != 0 || peer < 0 || peer >= of->size || peer == of->rank) return invalid_usage;
  group.push_back({true, static_cast<char*>(const_cast<void*>(bytes)), count, peer, of, stream});
  return success;
}

EXPORTED int ncclRecv(void* bytes, std::size_t count, int type, int peer, void* communicator,
                      dace_redist::Stream stream) {
  auto* const of = static_cast<Communicator*>(communicator);
  if (open == 0 || type != 0 || peer < 0 || peer >= of->size || peer == of->rank) return invalid_usage;
  group.push_back({false, static_cast<char*>(bytes), count, peer, of, stream});
  return success;
}

EXPORTED int ncclGroupEnd() {
  if (open == 0) return invalid_usage;
  if (--open > 0) return success;
  const std::vector<Message> messages = std::move(group);
  group.clear();
  if (std::exchange(failed, false)) return internal_error;
  for (const Message& message : messages) {
    if (current_device().device_of(message.bytes) < 0) return invalid_usage;
    current_device().synchronize(message.stream);
  }
  for (const Message& message : messages)
    if (message.send) send(message);
  for (const Message& message : messages)
    if (!message.send && !receive(message)) return internal_error;
  return success;
}

EXPORTED const char* ncclGetErrorString(int result) {
  return result == invalid_usage ? "invalid usage" : "internal error";
}
