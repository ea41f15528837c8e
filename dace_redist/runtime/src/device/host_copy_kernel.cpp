// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_copy_kernel.hpp"

#include <cstdint>
#include <cstring>
#include <memory>

#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

/// A phase of a kernel: all threads of a thread block, then its barrier.
template <class Phase>
void for_each_thread(const Phase& phase) {
  for (std::uint32_t thread = 0; thread < tile_threads; ++thread) phase(thread);
}

}  // namespace

TiledCopies::Table HostCopyKernel::make_table(const void* bytes, std::size_t nbytes) {
  const std::shared_ptr<char> table(static_cast<char*>(std::malloc(nbytes)), std::free);
  if (nbytes > 0) std::memcpy(table.get(), bytes, nbytes);
  return table;
}

void HostCopyKernel::start(const TilePart& part, const TileLaunch& launch, Stream) {
  visit_tile_words(part.words, launch.operation, [&](auto tag) {
    using Words = typename decltype(tag)::type;
    const Words words(launch.operation);
    TransposedTile<Words> shared;
    for (std::uint32_t tile = 0; tile < part.tiles; ++tile) {
      if (!part.transposed) {
        for_each_thread([&](std::uint32_t thread) { copy_words(launch, tile, thread, words); });
        continue;
      }
      for_each_thread([&](std::uint32_t thread) { read_rows(launch, tile, thread, words, shared); });
      for_each_thread([&](std::uint32_t thread) { write_columns(launch, tile, thread, words, shared); });
    }
  });
}

}  // namespace dace_redist
