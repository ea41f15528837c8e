// Memory for tests of XPMEM.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace {

/// Private memory that the stand-in of XPMEM can attach.
template <class T>
struct Attachable {
  using value_type = T;
  static constexpr int flags = MAP_SHARED | MAP_ANONYMOUS;

  T* allocate(std::size_t count) const {
    return static_cast<T*>(mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, flags, -1, 0));
  }
  void deallocate(T* bytes, std::size_t count) const { munmap(bytes, count * sizeof(T)); }
  bool operator==(const Attachable&) const { return true; }
  bool operator!=(const Attachable&) const { return false; }
};

}  // namespace
