// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory in huge pages, where the system has them: strided copies then spend less on finding pages.

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

namespace dace_redist {

/// Of processors whose pages have 4 KiB; elsewhere what follows does no harm.
inline constexpr std::int64_t huge_page_bytes = std::int64_t{2} << 20;

/// Asks for huge pages where memory is touched first. A wish: no matter if refused.
inline void ask_for_huge_pages([[maybe_unused]] void* start, [[maybe_unused]] std::int64_t nbytes) {
#ifdef MADV_HUGEPAGE
  madvise(start, static_cast<std::size_t>(nbytes), MADV_HUGEPAGE);
#endif
}

#ifdef __linux__

/// Whether the administrator allows no memory huge pages.
inline bool huge_pages_forbidden() {
  static const bool forbidden = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    const std::string choices((std::istreambuf_iterator<char>(file)), {});
    return choices.find("[never]") != std::string::npos;
  }();
  return forbidden;
}

/// Puts new node-shared memory into huge pages at once, as far as it fills some. Asked for them, the kernel gives such
/// memory none unless the administrator says so (`shmem_enabled`); from Linux 6.1 on it can also be told to collapse
/// what is there, which takes less time than to touch the small pages one by one. Refused, they stay small.
/// \param start  at a multiple of the size of a huge page.
inline void take_huge_pages(char* start, std::int64_t nbytes) {
  constexpr int collapse = 25;  // MADV_COLLAPSE, which older headers lack
  const std::int64_t whole = nbytes / huge_page_bytes * huge_page_bytes;
  if (whole == 0 || huge_pages_forbidden()) return;
  ask_for_huge_pages(start, whole);
  for (std::int64_t page = 0; page < whole; page += huge_page_bytes)
    *static_cast<volatile char*>(start + page) = 0;  // where nothing is, nothing is collapsed
  madvise(start, static_cast<std::size_t>(whole), collapse);
}

#endif

}  // namespace dace_redist
