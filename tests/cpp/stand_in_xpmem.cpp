// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The functions of XPMEM that the package calls, without its kernel module: only memory that is mapped as shared
/// (mmap with MAP_SHARED) can be attached, through /proc/PID/map_files, and only by root. STAND_IN_XPMEM_REFUSES:
/// number of an attachment of a process, from 1 on, from which on all fail.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct Address {
  std::int64_t access;
  off_t offset;
};

std::map<void*, std::size_t> attached;
long attachments = 0;

/// A mapping of a process, as a line of /proc/PID/maps describes it.
struct Mapping {
  unsigned long begin = 0, end = 0, offset = 0;
  char rights[5] = "";

  explicit Mapping(const std::string& line) {
    std::sscanf(line.c_str(), "%lx-%lx %4s %lx", &begin, &end, rights, &offset);
  }
  bool shared() const { return rights[3] == 's'; }

  /// Maps what lies in `[first, last)` to an address. \return whether that succeeded.
  bool map(std::int64_t process, unsigned long first, unsigned long last, char* here) const {
    char path[96];
    std::snprintf(path, sizeof path, "/proc/%lld/map_files/%lx-%lx", static_cast<long long>(process), begin, end);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    void* const bytes = mmap(here, last - first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                             static_cast<off_t>(offset + first - begin));
    close(file);
    return bytes != MAP_FAILED;
  }
};

}  // namespace

EXPORTED std::int64_t xpmem_make(void*, std::size_t, int, void*) { return getpid(); }
EXPORTED std::int64_t xpmem_get(std::int64_t segment, int, int, void*) { return segment; }
EXPORTED int xpmem_release(std::int64_t) { return 0; }

EXPORTED void* xpmem_attach(Address address, std::size_t nbytes, void*) {
  void* const failed = reinterpret_cast<void*>(-1);
  const char* const refuses = std::getenv("STAND_IN_XPMEM_REFUSES");
  if (++attachments >= (refuses ? std::atol(refuses) : INT64_MAX)) return failed;
  const auto begin = static_cast<unsigned long>(address.offset), end = begin + nbytes;
  auto* const here =
      static_cast<char*>(mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (here == MAP_FAILED) return failed;
  std::ifstream maps("/proc/" + std::to_string(address.access) + "/maps");
  std::size_t mapped = 0;
  for (std::string line; std::getline(maps, line);) {
    const Mapping mapping(line);
    const unsigned long first = std::max(mapping.begin, begin), last = std::min(mapping.end, end);
    if (mapping.shared() && first < last && mapping.map(address.access, first, last, here + (first - begin)))
      mapped += last - first;
  }
  if (mapped < nbytes) {
    munmap(here, nbytes);
    return failed;
  }
  attached[here] = nbytes;
  return here;
}

EXPORTED int xpmem_detach(void* begin) {
  const auto found = attached.find(begin);
  if (found == attached.end()) return -1;
  munmap(begin, found->second);
  attached.erase(found);
  return 0;
}
