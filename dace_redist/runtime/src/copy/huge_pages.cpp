// SPDX-License-Identifier: BSD-3-Clause
#include "copy/huge_pages.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include "core/machine.hpp"

namespace dace_redist {
namespace {

constexpr int collapse_advice = 25;  // MADV_COLLAPSE, which older headers lack

/// True if transparent huge pages are disabled system-wide.
bool huge_pages_forbidden() {
  static const bool forbidden = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    const std::string choices((std::istreambuf_iterator<char>(file)), {});
    return choices.find("[never]") != std::string::npos;
  }();
  return forbidden;
}

/// Requests huge pages for memory at its first touch. Advisory: errors are ignored.
void ask_for_huge_pages([[maybe_unused]] void* start, [[maybe_unused]] std::int64_t nbytes) {
#ifdef MADV_HUGEPAGE
  madvise(start, static_cast<std::size_t>(nbytes), MADV_HUGEPAGE);
#endif
}

}  // namespace

char* aligned_address(std::int64_t nbytes) {
  const auto size = static_cast<std::size_t>(nbytes + huge_page_bytes);
  void* const found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  munmap(found, size);
  const auto address = reinterpret_cast<std::uintptr_t>(found);
  const auto past = static_cast<std::int64_t>(address % static_cast<std::uintptr_t>(huge_page_bytes));
  return static_cast<char*>(found) + (past == 0 ? 0 : huge_page_bytes - past);
}

char* map_huge_pages(std::int64_t nbytes) {
  const std::int64_t whole = round_up(nbytes, huge_page_bytes);
  void* const bytes = mmap(aligned_address(whole), static_cast<std::size_t>(whole), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return nullptr;
  ask_for_huge_pages(bytes, whole);
  return static_cast<char*>(bytes);
}

void unmap_huge_pages(char* start, std::int64_t nbytes) {
  munmap(start, static_cast<std::size_t>(round_up(nbytes, huge_page_bytes)));
}

void take_huge_pages(char* start, std::int64_t nbytes) {
  const std::int64_t whole = nbytes / huge_page_bytes * huge_page_bytes;
  if (whole == 0 || huge_pages_forbidden()) return;
  ask_for_huge_pages(start, whole);
  // MADV_COLLAPSE skips pages that are not present: touch one byte of each
  for (std::int64_t page = 0; page < whole; page += huge_page_bytes) *static_cast<volatile char*>(start + page) = 0;
  madvise(start, static_cast<std::size_t>(whole), collapse_advice);
}

}  // namespace dace_redist
