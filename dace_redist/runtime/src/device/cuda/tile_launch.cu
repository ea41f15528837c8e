// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>

#include "device/cuda/tile_launch.hpp"
#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

constexpr int blocks_on_multiprocessor = 4;  // at least, which limits the registers of a thread to 64

template <class Words>
__global__ void __launch_bounds__(tile_threads, blocks_on_multiprocessor)
    copy_words_kernel(const __grid_constant__ TileLaunch launch) {
  __shared__ TileStart start;
  start_tile(launch, blockIdx.x, threadIdx.x, start);
  __syncthreads();
  copy_words(launch, start, threadIdx.x, Words(launch.operation));
}

template <class Words>
__global__ void __launch_bounds__(tile_threads, blocks_on_multiprocessor)
    copy_boxes_kernel(const __grid_constant__ TileLaunch launch) {
  __shared__ TileStart start;
  __shared__ BoxTile<Words> tile;
  const Words words(launch.operation);
  start_tile(launch, blockIdx.x, threadIdx.x, start);
  __syncthreads();
  place_boxes(launch, start, threadIdx.x, tile);
  __syncthreads();
  read_boxes(launch, start, threadIdx.x, words, tile);
  __syncthreads();
  write_boxes(launch, start, threadIdx.x, words, tile);
}

}  // namespace

void launch_tiles(const TilePart& part, const TileLaunch& launch, Stream stream) {
  visit_tile_words(part.words, launch.operation, [&](auto tag) {
    using Words = typename decltype(tag)::type;
    if (part.boxes)
      copy_boxes_kernel<Words><<<part.tiles, tile_threads, 0, static_cast<cudaStream_t>(stream)>>>(launch);
    else
      copy_words_kernel<Words><<<part.tiles, tile_threads, 0, static_cast<cudaStream_t>(stream)>>>(launch);
  });
}

}  // namespace dace_redist
