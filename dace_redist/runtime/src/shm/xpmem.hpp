// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// XPMEM: private memory of another process of the node, mapped into this one by the kernel module of that name, as far
/// as the machine has it. Its library is loaded when it is needed.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace dace_redist {

/// Environment variable: file of libxpmem, by default `libxpmem.so.0`; 0: XPMEM is not used.
inline constexpr const char* xpmem_variable = "DACE_REDIST_XPMEM";

/// Lets processes of this user map the memory of this one. \return number by which they do; -1 without XPMEM.
std::int64_t export_memory();

/// Private memory of another process, mapped piece by piece. Thread-safe.
class ForeignMemory {
 public:
  /// \param segment  what export_memory() returned in that process.
  explicit ForeignMemory(std::int64_t segment) : segment_(segment) {}
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;
  ~ForeignMemory();

  /// Maps bytes of that process, or finds them mapped. The mapping is kept for later calls; it follows what that
  /// process maps at the address.
  /// \return where they lie here, as long as the caller holds it; null if they cannot be mapped.
  std::shared_ptr<char> map(std::uintptr_t address, std::int64_t nbytes);

 private:
  struct Piece {
    std::uintptr_t begin, end;    // in that process, whole pages
    std::shared_ptr<char> bytes;  // here
  };

  std::int64_t segment_, access_ = -1;
  std::list<Piece> pieces_;  // the last used first
  std::mutex guard_;
};

}  // namespace dace_redist
