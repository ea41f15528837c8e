// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Cross-memory reads: copies out of another process's private memory, by the kernel.

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "copy/chunk_walk.hpp"
#include "copy/copy.hpp"

namespace dace_redist {

/// Bytes to read at once: with a quarter of it, calls of the kernel take a tenth of the time.
inline constexpr std::int64_t remote_read_bytes = 512 << 10;

/// Whether this process may read that one's memory; the kernel allows it to processes of one user, unless the machine
/// is set up otherwise (`ptrace_scope`, seccomp).
inline bool can_read(pid_t process, std::uintptr_t address) {
  char byte = 0;
  const iovec here{&byte, 1}, there{reinterpret_cast<void*>(address), 1};
  return process_vm_readv(process, &here, 1, &there, 1, 0) == 1;
}

/// Copies a block whose source lies in another process.
/// \param block    at most 1 GiB.
/// \param process  who has the source.
/// \param source   address of the source array there.
/// \param target   start of the target array here.
/// \return false if the kernel refused; the target then holds a part of it.
inline bool copy_from(const CopyBlock& block, pid_t process, std::uintptr_t source, char* target) {
  constexpr std::size_t most = 64;
  std::array<iovec, most> here, there;
  std::size_t count = 0;
  const auto copy_runs = [&] {
    const auto wanted = static_cast<ssize_t>(count) * static_cast<ssize_t>(block.run_bytes);
    const ssize_t got = process_vm_readv(process, here.data(), count, there.data(), count, 0);
    count = 0;
    return got == wanted;
  };
  detail::ChunkWalk walk(block, -1, 1, 1);
  do {
    const auto nbytes = static_cast<std::size_t>(block.run_bytes);
    here[count] = {target + block.target_offset + walk.target(), nbytes};
    there[count] = {reinterpret_cast<void*>(source + static_cast<std::uintptr_t>(block.source_offset + walk.source())),
                    nbytes};
    if (++count == most && !copy_runs()) return false;
  } while (walk.advance());
  return count == 0 || copy_runs();
}

}  // namespace dace_redist
