// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Measures the copy kernel against loops of memcpy calls; prints one JSON line per case.
///
/// Usage: copy_kernel BLOCK_BYTES REPETITIONS GAP [RUN_BYTES ...]
/// GAP: bytes of a strided side per byte copied, at least (2: every second run).

#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "copy/copy.hpp"
#include "copy/packing.hpp"

namespace {

using dace_redist::CopyBlock;
using dace_redist::StridedBlock;

/// A box of runs that has `ndim` dimensions after merging.
struct Box {
  StridedBlock block;
  std::int64_t run_bytes = 0, source_bytes = 0, target_bytes = 0;
};

/// Strides of a dimension over all inner ones: without gaps, or with padding that keeps dimensions apart.
std::int64_t fill_strides(const StridedBlock& block, std::int64_t run_bytes, std::int64_t gap,
                          std::array<std::int64_t, dace_redist::max_block_dims>& strides) {
  std::int64_t stride = run_bytes * gap;
  for (auto d = static_cast<std::size_t>(block.ndim) - 1; d-- > 0;) {
    strides[d] = stride;
    stride *= block.counts[d] + (gap > 1 && d > 0 ? 1 : 0);
  }
  strides[static_cast<std::size_t>(block.ndim) - 1] = 1;
  return stride;
}

/// `ndim` dimensions of runs, the outer ones 4 long, and the run, in bytes.
Box make_box(int ndim, std::int64_t run_bytes, std::int64_t block_bytes, std::int64_t source_gap,
             std::int64_t target_gap) {
  Box box;
  box.run_bytes = run_bytes;
  box.block.ndim = ndim + 1;
  std::int64_t runs = std::max<std::int64_t>(1, block_bytes / run_bytes);
  for (int d = ndim - 1; d > 0; --d) {
    box.block.counts[static_cast<std::size_t>(d)] = 4;
    runs = std::max<std::int64_t>(1, runs / 4);
  }
  box.block.counts[0] = runs;
  if (ndim > 1) std::swap(box.block.counts[0], box.block.counts[static_cast<std::size_t>(ndim) / 2]);
  box.block.counts[static_cast<std::size_t>(ndim)] = run_bytes;
  box.source_bytes = fill_strides(box.block, run_bytes, source_gap, box.block.source_strides);
  box.target_bytes = fill_strides(box.block, run_bytes, target_gap, box.block.target_strides);
  return box;
}

/// One after the other: runs by memcpy of a length that the compiler does not know, in loops like a good programmer's.
void memcpy_loop(const StridedBlock& block, std::size_t d, const char* source, char* target, std::size_t run_bytes) {
  const std::int64_t count = block.counts[d], from = block.source_strides[d], to = block.target_strides[d];
  const bool innermost = d + 2 == static_cast<std::size_t>(block.ndim);
  for (std::int64_t i = 0; i < count; ++i)
    if (innermost)
      std::memcpy(target + i * to, source + i * from, run_bytes);
    else
      memcpy_loop(block, d + 1, source + i * from, target + i * to, run_bytes);
}

/// rows x columns elements from row-major to column-major.
StridedBlock transpose_box(std::int64_t rows, std::int64_t columns) {
  StridedBlock block;
  block.ndim = 2;
  block.counts = {rows, columns};
  block.source_strides = {columns, 1};
  block.target_strides = {1, rows};
  return block;
}

/// Processor time of this thread: other programs on the machine take cache and memory, but not the processor, from it.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Variant {
  const char* name;
  std::function<void()> work;
};

/// Runs all variants `repetitions` times in a new order each time, each timed after one run of its own, and prints the
/// medians in GB/s.
void measure(const char* direction, int ndim, std::int64_t run_bytes, std::int64_t nbytes, int repetitions,
             const std::vector<Variant>& variants) {
  std::vector<std::vector<double>> seconds(variants.size());
  constexpr std::int64_t timed_bytes = 4 << 20;  // small blocks are copied several times
  const auto copies = static_cast<int>(std::max<std::int64_t>(1, timed_bytes / std::max<std::int64_t>(1, nbytes)));
  std::vector<std::size_t> order(variants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 engine(1);
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::shuffle(order.begin(), order.end(), engine);
    for (const std::size_t v : order) {
      variants[v].work();  // so that the caches hold what a repeated copy of this kind leaves in them
      const double start = thread_seconds();
      for (int i = 0; i < copies; ++i) variants[v].work();
      seconds[v].push_back((thread_seconds() - start) / copies);
    }
  }
  std::printf("{\"direction\": \"%s\", \"ndim\": %d, \"run_bytes\": %lld, \"block_bytes\": %lld", direction, ndim,
              static_cast<long long>(run_bytes), static_cast<long long>(nbytes));
  for (std::size_t v = 0; v < variants.size(); ++v) {
    auto& values = seconds[v];
    std::nth_element(values.begin(), values.begin() + repetitions / 2, values.end());
    std::printf(", \"%s\": %.3f", variants[v].name,
                static_cast<double>(nbytes) / values[static_cast<std::size_t>(repetitions) / 2] / 1e9);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

/// An array as redistributions have it: NumPy's and the plans' buffers have huge pages where the system grants them.
class Memory {
 public:
  char* at_least(std::int64_t nbytes) {
    if (nbytes > nbytes_) {
      buffer_ = dace_redist::Buffer(nbytes);
      std::memset(buffer_.at(0), 1, static_cast<std::size_t>(nbytes));
      nbytes_ = nbytes;
    }
    return buffer_.at(0);
  }

 private:
  dace_redist::Buffer buffer_;
  std::int64_t nbytes_ = 0;
};

void measure_box(const char* direction, int ndim, const Box& box, int repetitions, Memory& source_memory,
                 Memory& target_memory) {
  const char* const source = source_memory.at_least(box.source_bytes);
  char* const target = target_memory.at_least(box.target_bytes);
  const CopyBlock block = make_copy_block(box.block, 1);
  const std::int64_t nbytes = block.nbytes();
  volatile std::size_t hidden_run = static_cast<std::size_t>(box.run_bytes);
  const bool stream = nbytes >= dace_redist::stream_threshold_bytes();
  measure(direction, ndim, box.run_bytes, nbytes, repetitions,
          {{"auto", [&] { copy(block, source, target, stream); }},
           {"ordinary", [&] { copy(block, source, target, false); }},
           {"stream", [&] { copy(block, source, target, true); }},
           {"memcpy_loop", [&] { memcpy_loop(box.block, 0, source, target, hidden_run); }},
           {"memcpy", [&] { std::memcpy(target, source, static_cast<std::size_t>(nbytes)); }}});
}

void measure_transpose(std::int64_t element_bytes, std::int64_t block_bytes, bool odd, int repetitions) {
  std::int64_t side = 1;
  while (4 * side * side * element_bytes <= block_bytes) side *= 2;
  const std::int64_t rows = odd ? side + 13 : side, columns = block_bytes / element_bytes / rows;
  const StridedBlock box = transpose_box(rows, columns);
  const CopyBlock block = make_copy_block(box, element_bytes);
  const std::int64_t nbytes = block.nbytes();
  Memory source, target;
  const char* const from = source.at_least(nbytes);
  char* const to = target.at_least(nbytes);
  const bool stream = nbytes >= dace_redist::stream_threshold_bytes();
  volatile std::size_t hidden_run = static_cast<std::size_t>(element_bytes);
  StridedBlock loops;  // as the programmer's loop: rows, columns, element
  loops.ndim = 3;
  loops.counts = {rows, columns, 1};
  loops.source_strides = {columns * element_bytes, element_bytes, 1};
  loops.target_strides = {element_bytes, rows * element_bytes, 1};
  measure(odd ? "transpose_odd" : "transpose", 2, element_bytes, nbytes, repetitions,
          {{"auto", [&] { copy(block, from, to, stream); }},
           {"ordinary", [&] { copy(block, from, to, false); }},
           {"stream", [&] { copy(block, from, to, true); }},
           {"memcpy_loop", [&] { memcpy_loop(loops, 0, from, to, hidden_run); }},
           {"memcpy", [&] { std::memcpy(to, from, static_cast<std::size_t>(nbytes)); }}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s BLOCK_BYTES REPETITIONS GAP [RUN_BYTES ...]\n", argv[0]);
    return 2;
  }
  const std::int64_t block_bytes = std::atoll(argv[1]);
  const int repetitions = std::max(1, std::atoi(argv[2]));
  const std::int64_t gap = std::max(2LL, std::atoll(argv[3]));
  std::vector<std::int64_t> runs{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 600, 1024, 4096, 65536};
  if (argc > 4) runs.clear();
  for (int i = 4; i < argc; ++i) runs.push_back(std::atoll(argv[i]));
  Memory source, target;
  for (const std::int64_t run_bytes : runs)
    for (int ndim = 1; ndim <= 5; ++ndim) {
      measure_box("pack", ndim, make_box(ndim, run_bytes, block_bytes, gap, 1), repetitions, source, target);
      measure_box("unpack", ndim, make_box(ndim, run_bytes, block_bytes, 1, gap), repetitions, source, target);
      measure_box("strided", ndim, make_box(ndim, run_bytes, block_bytes, gap, gap), repetitions, source, target);
    }
  for (const std::int64_t element_bytes : {1, 2, 4, 8, 16, 24, 48, 96})
    for (const bool odd : {false, true}) measure_transpose(element_bytes, block_bytes, odd, repetitions);
  return 0;
}
