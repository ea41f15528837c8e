// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A machine of 16 TiB of memory, preloaded.

#include <dlfcn.h>
#include <unistd.h>

extern "C" long sysconf(int name) noexcept {
  static const auto system = reinterpret_cast<decltype(&sysconf)>(dlsym(RTLD_NEXT, "sysconf"));
  return name == _SC_PHYS_PAGES ? (16L << 40) / system(_SC_PAGESIZE) : system(name);
}
