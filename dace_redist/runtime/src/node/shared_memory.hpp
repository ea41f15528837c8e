// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory that the ranks of one node map into their address spaces, and how they wait for each other there.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "copy/huge_pages.hpp"
#include "core/error.hpp"

namespace dace_redist {

/// Environment variable: most bytes of node-shared memory in one piece; 0: none at all.
inline constexpr const char* shared_memory_variable = "DACE_REDIST_SHARED_BYTES";

/// Most bytes of node-shared memory in one piece: what the machine has available, or the environment's limit.
/// \throws Error if the variable is set to something else than a number of bytes.
inline std::int64_t shared_memory_limit() {
  if (const char* value = std::getenv(shared_memory_variable)) {
    char* end = nullptr;
    const long long limit = std::strtoll(value, &end, 10);
    if (end == value || *end != '\0' || limit < 0)
      throw Error(text(shared_memory_variable, ": expected a number of bytes >= 0, got \"", value, "\""));
    return limit;
  }
  std::ifstream lines("/proc/meminfo");
  std::string name, unit;
  for (std::int64_t kilobytes = 0; lines >> name >> kilobytes; std::getline(lines, unit))
    if (name == "MemAvailable:") return kilobytes * 1024;
  return std::numeric_limits<std::int64_t>::max();
}

/// What another process needs to map a segment.
struct SegmentName {
  std::int64_t process = 0, descriptor = -1, nbytes = 0;
};

/// A segment of memory without a name in any file system: it is gone when the last process that maps it is, however
/// that ends. Other processes of the same user find it through its owner's entry in /proc.
class SharedSegment {
 public:
  SharedSegment() = default;

  /// \throws Error if there is no such memory; says how much was needed, and how much there is.
  explicit SharedSegment(std::int64_t nbytes) : nbytes_(nbytes) {
    if (nbytes == 0) return;
    const std::int64_t limit = shared_memory_limit();
    if (nbytes > limit)
      throw Error(text("cannot allocate ", nbytes, " bytes of node-shared memory: there are ", limit, " bytes",
                       std::getenv(shared_memory_variable) ? text(" (", shared_memory_variable, ")") : ""));
    descriptor_ = memfd_create("dace_redist", MFD_CLOEXEC);
    if (descriptor_ < 0 || ftruncate(descriptor_, nbytes) != 0) fail("allocate", errno);
    map();
    take_huge_pages(bytes_, nbytes_);
  }

  /// Maps another process's segment.
  explicit SharedSegment(const SegmentName& name) : nbytes_(name.nbytes) {
    if (nbytes_ == 0) return;
    const std::string path = text("/proc/", name.process, "/fd/", name.descriptor);
    descriptor_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor_ < 0) fail(text("open ", path, ", "), errno);
    struct stat file {};
    if (fstat(descriptor_, &file) != 0 || file.st_size != nbytes_) fail(text("find in ", path, ", "), ESTALE);
    map();
    close(std::exchange(descriptor_, -1));  // the mapping stays; the number is not needed to name it again
  }

  SharedSegment(SharedSegment&& other) noexcept { swap(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept {
    swap(other);
    return *this;
  }
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment() { release(); }

  /// Leaves mapping and descriptor to somebody else.
  void forget() {
    bytes_ = nullptr;
    descriptor_ = -1;
  }

  char* at(std::int64_t offset) const { return bytes_ + offset; }
  std::int64_t nbytes() const { return nbytes_; }
  int descriptor() const { return descriptor_; }
  SegmentName name() const { return {static_cast<std::int64_t>(getpid()), descriptor_, nbytes_}; }

 private:
  void map() {
    const auto size = static_cast<std::size_t>(nbytes_);
    void* const bytes = mmap(aligned_hint(), size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (bytes == MAP_FAILED) fail("map", errno);
    bytes_ = static_cast<char*>(bytes);
  }

  /// Where huge pages can be mapped as such: free addresses from a multiple of their size on. A hint; null if none.
  void* aligned_hint() const {
    if (nbytes_ < huge_page_bytes) return nullptr;
    const auto size = static_cast<std::size_t>(nbytes_ + huge_page_bytes);
    void* const found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return nullptr;
    munmap(found, size);
    const auto address = reinterpret_cast<std::uintptr_t>(found);
    const auto past = address % static_cast<std::uintptr_t>(huge_page_bytes);
    return static_cast<char*>(found) + (past == 0 ? 0 : huge_page_bytes - static_cast<std::int64_t>(past));
  }

  void release() noexcept {
    if (bytes_) munmap(bytes_, static_cast<std::size_t>(nbytes_));
    if (descriptor_ >= 0) close(descriptor_);
    bytes_ = nullptr;
    descriptor_ = -1;
  }

  void swap(SharedSegment& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(nbytes_, other.nbytes_);
    std::swap(descriptor_, other.descriptor_);
  }

  [[noreturn]] void fail(const std::string& what, int code) {
    release();
    throw Error(text("cannot ", what, " ", nbytes_, " bytes of node-shared memory: ", std::strerror(code)));
  }

  char* bytes_ = nullptr;
  std::int64_t nbytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace dace_redist
