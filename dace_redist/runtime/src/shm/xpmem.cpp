// SPDX-License-Identifier: BSD-3-Clause
#include "shm/xpmem.hpp"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "core/machine.hpp"

namespace dace_redist {
namespace {

/// What is used of libxpmem, with the types of its header. A number below 0 or the address -1 is a failure.
struct Xpmem {
  struct Address {
    std::int64_t access;
    off_t offset;
  };
  std::int64_t (*xpmem_make)(void* begin, std::size_t nbytes, int permission_type, void* permission);
  std::int64_t (*xpmem_get)(std::int64_t segment, int flags, int permission_type, void* permission);
  int (*xpmem_release)(std::int64_t access);
  void* (*xpmem_attach)(Address address, std::size_t nbytes, void* hint);
  int (*xpmem_detach)(void* begin);
};
constexpr std::size_t whole_address_space = static_cast<std::size_t>(-1);
constexpr int reads_and_writes = 2, by_mode = 1;
void* const mode_of_owner = reinterpret_cast<void*>(0600);  // NOLINT(performance-no-int-to-ptr)

/// libxpmem; null where it is missing or switched off.
const Xpmem* xpmem() {
  static const Xpmem* const loaded = []() -> const Xpmem* {
    const char* const given = std::getenv(xpmem_variable);
    const std::string path = given && *given ? given : "libxpmem.so.0";
    void* const library = path == "0" ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    auto* const found = new Xpmem{};
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool complete = find(found->xpmem_make, "xpmem_make") && find(found->xpmem_get, "xpmem_get") &&
                          find(found->xpmem_release, "xpmem_release") && find(found->xpmem_attach, "xpmem_attach") &&
                          find(found->xpmem_detach, "xpmem_detach");
    return complete ? found : nullptr;
  }();
  return loaded;
}

}  // namespace

std::int64_t export_memory() {
  return xpmem() ? std::max<std::int64_t>(-1, xpmem()->xpmem_make(nullptr, whole_address_space, by_mode, mode_of_owner))
                 : -1;
}

ForeignMemory::~ForeignMemory() {
  pieces_.clear();
  if (access_ >= 0) xpmem()->xpmem_release(access_);
}

std::shared_ptr<char> ForeignMemory::map(std::uintptr_t address, std::int64_t nbytes) {
  constexpr std::size_t max_pieces = 256;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = address / page * page, end = address + static_cast<std::uintptr_t>(nbytes);
  const std::lock_guard<std::mutex> guard(guard_);
  auto piece = std::find_if(pieces_.begin(), pieces_.end(),
                            [&](const Piece& known) { return known.begin <= begin && end <= known.end; });
  if (piece == pieces_.end()) {
    if (segment_ < 0 || !xpmem()) return nullptr;
    if (access_ < 0) access_ = xpmem()->xpmem_get(segment_, reads_and_writes, by_mode, nullptr);
    const auto whole =
        static_cast<std::size_t>(round_up(static_cast<std::int64_t>(end - begin), static_cast<std::int64_t>(page)));
    void* const bytes =
        access_ < 0 ? nullptr : xpmem()->xpmem_attach({access_, static_cast<off_t>(begin)}, whole, nullptr);
    if (!bytes || bytes == reinterpret_cast<void*>(-1)) {  // NOLINT(performance-no-int-to-ptr)
      segment_ = -1;                                       // not tried again
      return nullptr;
    }
    piece = pieces_.insert(
        pieces_.begin(),
        {begin, begin + whole, {static_cast<char*>(bytes), [](char* here) { xpmem()->xpmem_detach(here); }}});
    if (pieces_.size() > max_pieces) pieces_.pop_back();
  }
  pieces_.splice(pieces_.begin(), pieces_, piece);
  return {piece->bytes, piece->bytes.get() + (address - piece->begin)};
}

}  // namespace dace_redist
