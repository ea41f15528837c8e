// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Copies of 2 GB on the GPU in use against a plain copy of as many bytes, as a table. A few thousand elements of each
/// outcome are compared with what they must be.
///
/// Usage: pack LIBRARY [nbytes]

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "copy/element_operation.hpp"
#include "device/device.hpp"

namespace {

using namespace dace_redist;
using Index = std::int64_t;
using Shape = std::vector<Index>;

constexpr int samples = 11, launches = 4;
constexpr std::size_t table_words = 1000003;  // 64-bit words that are repeated all over the source

Shape row_major(const Shape& extents) {
  Shape strides(extents.size(), 1);
  for (std::size_t d = extents.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * extents[d + 1];
  return strides;
}

Index product(const Shape& extents) {
  Index result = 1;
  for (const Index extent : extents) result *= extent;
  return result;
}

StridedBlock make_block(const Shape& counts, const Shape& source_strides, const Shape& target_strides) {
  StridedBlock block;
  block.ndim = static_cast<int>(counts.size());
  std::copy(counts.begin(), counts.end(), block.counts.begin());
  std::copy(source_strides.begin(), source_strides.end(), block.source_strides.begin());
  std::copy(target_strides.begin(), target_strides.end(), block.target_strides.begin());
  return block;
}

/// Part of an array with as many elements around it in each dimension, so that no dimensions merge.
Shape padded(Shape counts) {
  for (std::size_t d = 1; d + 1 < counts.size(); ++d) counts[d] += 2;
  counts.back() *= 2;
  return counts;
}

class Bench {
 public:
  Bench(Device& device, Index nbytes)
      : device_(device),
        nbytes_(nbytes),
        room_(3 * nbytes),
        source_memory_(device.allocate(room_)),
        target_memory_(device.allocate(room_)),
        own_stream_(device.make_stream()),
        source_(static_cast<char*>(source_memory_.get())),
        target_(static_cast<char*>(target_memory_.get())),
        stream_(own_stream_.get()),
        table_(table_words) {
    std::mt19937_64 random(1);
    for (std::uint64_t& word : table_) word = random() >> 12 | std::uint64_t{0x3ff} << 52;  // numbers from 1 to 2
    const Index table_bytes = static_cast<Index>(table_words * sizeof table_[0]);
    for (Index at = 0; at < room_; at += table_bytes)
      device.copy(source_ + at, table_.data(), std::min(table_bytes, room_ - at), stream_);
    device.synchronize(stream_);
    print("cudaMemcpyAsync", nbytes_, nbytes_, seconds([&] { device_.copy(target_, source_, nbytes_, stream_); }), "");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool good() const { return good_; }

  void run(const std::string& name, const std::vector<StridedBlock>& blocks, Index element_bytes) {
    std::vector<DeviceCopy> copies;
    Index count = 0;
    for (const StridedBlock& block : blocks) {
      copies.push_back({block, 0, 0});
      count += block.count();
    }
    CopyKernel kernel(device_, copies, {element_bytes, element_bytes, nullptr});
    const double taken = seconds([&] { kernel.launch({source_}, {target_}, stream_); });
    const bool right = is_right(blocks, element_bytes);
    print(name, count * element_bytes, count * element_bytes, taken, right ? "" : "  WRONG");
    good_ = good_ && right;
  }

  /// Computes with elements of one type; the outcome is left to the tests.
  void run(const std::string& name, const StridedBlock& block, const ElementOperation& operation) {
    const ElementKernel elements(operation);
    const Index source_bytes = element_bytes_of(operation.source), target_bytes = element_bytes_of(operation.target);
    CopyKernel kernel(device_, {{block, 0, 0}}, {source_bytes, target_bytes, &elements});
    const double taken = seconds([&] { kernel.launch({source_}, {target_}, stream_); });
    const Index times = operation.beta != 0.0 || operation.reduction != Reduction::none ? 2 : 1;
    print(name, block.count() * source_bytes, block.count() * target_bytes * times, taken, "");
  }

 private:
  template <class Work>
  double seconds(const Work& work) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> taken;
    for (int sample = -1; sample < samples; ++sample) {  // the first one warms up
      const auto start = Clock::now();
      for (int launch = 0; launch < launches; ++launch) work();
      device_.synchronize(stream_);
      if (sample >= 0) taken.push_back(std::chrono::duration<double>(Clock::now() - start).count() / launches);
    }
    std::nth_element(taken.begin(), taken.begin() + samples / 2, taken.end());
    return taken[samples / 2];
  }

  void print(const std::string& name, Index read, Index written, double taken, const char* remark) {
    const double rate = static_cast<double>(read + written) / taken;
    if (plain_rate_ == 0) plain_rate_ = rate;
    std::printf("%-44s %8.1f MB %9.1f us %8.1f GB/s %6.3f of the copy", name.c_str(), static_cast<double>(read) * 1e-6,
                taken * 1e6, rate * 1e-9, rate / plain_rate_);
    std::printf("%s\n", remark);
    std::fflush(stdout);
  }

  bool is_right(const std::vector<StridedBlock>& blocks, Index element_bytes) {
    std::mt19937_64 random(2);
    std::vector<char> found(static_cast<std::size_t>(element_bytes));
    const auto* const table = reinterpret_cast<const char*>(table_.data());
    for (int i = 0; i < 2000; ++i) {
      const StridedBlock& block = blocks[random() % blocks.size()];
      Index from = block.source_offset, to = block.target_offset;
      for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) {
        const auto index = static_cast<Index>(random() % static_cast<std::uint64_t>(block.counts[d]));
        from += index * block.source_strides[d];
        to += index * block.target_strides[d];
      }
      device_.copy(found.data(), target_ + to * element_bytes, element_bytes, stream_);
      device_.synchronize(stream_);
      for (Index byte = 0; byte < element_bytes; ++byte) {
        const auto at = static_cast<std::size_t>(from * element_bytes + byte) % (table_words * sizeof table_[0]);
        if (found[static_cast<std::size_t>(byte)] != table[at]) return false;
      }
    }
    return true;
  }

  Device& device_;
  Index nbytes_, room_;
  DeviceHandle source_memory_, target_memory_, own_stream_;
  char *source_, *target_;
  Stream stream_;
  std::vector<std::uint64_t> table_;
  double plain_rate_ = 0;
  bool good_ = true;
};

/// Runs of a 5-D block of float64, to a message and from one.
void bench_runs(Bench& bench, Index nbytes) {
  for (const Index run_bytes : {16, 96, 1024}) {
    Shape counts{1, 24, 24, 24, run_bytes / 8};
    counts[0] = nbytes / 8 / product(counts);
    const Shape array = row_major(padded(counts)), message = row_major(counts);
    const std::string of_runs = " runs of " + std::to_string(run_bytes) + " B, 5-D";
    bench.run("pack" + of_runs, {make_block(counts, array, message)}, 8);
    bench.run("unpack" + of_runs, {make_block(counts, message, array)}, 8);
  }
}

/// A 5-D array whose axes are permuted. \param order  axes of the source in the order of the target.
void bench_permutation(Bench& bench, const std::string& name, const Shape& extents,
                       const std::vector<std::size_t>& order, Index element_bytes) {
  const Shape source = row_major(extents);
  Shape counts, source_strides;
  for (const std::size_t axis : order) {
    counts.push_back(extents[axis]);
    source_strides.push_back(source[axis]);
  }
  bench.run(name, {make_block(counts, source_strides, row_major(counts))}, element_bytes);
}

void bench_permutations(Bench& bench, Index nbytes) {
  const auto outermost = [nbytes](Index element_bytes, const Shape& inner) {
    return std::max<Index>(1, nbytes / element_bytes / product(inner));
  };
  const Shape even{64, 32, 32, 48}, odd{37, 29, 31, 45};
  for (const auto& [type, nbytes_of] :
       {std::pair<std::string, Index>{"float32", 4}, {"float64", 8}, {"complex128", 16}})
    for (const Shape& inner : {even, odd}) {
      Shape extents{outermost(nbytes_of, inner)};
      extents.insert(extents.end(), inner.begin(), inner.end());
      const std::string what = type + (inner == odd ? ", odd extents" : "");
      bench_permutation(bench, "permute 43210, " + what, extents, {4, 3, 2, 1, 0}, nbytes_of);
      bench_permutation(bench, "permute 01243, " + what, extents, {0, 1, 2, 4, 3}, nbytes_of);
    }
  bench_permutation(bench, "permute 32104 (runs), float64", {outermost(8, {64, 32, 32, 12}), 64, 32, 32, 12},
                    {3, 2, 1, 0, 4}, 8);
}

void bench_small_blocks(Bench& bench) {
  std::vector<StridedBlock> blocks;
  constexpr Index count = 40000;
  for (Index i = 0; i < count; ++i) {  // 8 rows of 64 bytes, not side by side
    blocks.push_back(make_block({8, 8}, {40, 1}, {8, 1}));
    blocks.back().source_offset = (i * 7919 % count) * 320;
    blocks.back().target_offset = i * 64;
  }
  bench.run("40000 blocks of 512 B", blocks, 8);
  blocks.resize(1000);
  bench.run("1000 blocks of 512 B", blocks, 8);
}

void bench_operations(Bench& bench, Index nbytes) {
  ElementOperation operation;
  const auto run = [&](const std::string& name, Index source_bytes) {
    const Index count = nbytes / 2 / source_bytes;
    bench.run(name, make_block({count}, {1}, {1}), operation);
  };
  operation.source = ElementType::float32;
  operation.target = ElementType::float64;
  run("float32 to float64", 4);
  operation.target = ElementType::float32;
  operation.alpha = 2;
  operation.beta = 1;
  run("float32, 2 A + B", 4);
  operation = {};
  operation.source = operation.target = ElementType::float64;
  operation.reduction = Reduction::sum;
  run("float64, op sum", 8);
  operation.source = operation.target = ElementType::int64;
  run("int64, op sum", 8);
  operation.source = operation.target = ElementType::int16;
  run("int16, op sum", 2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  using DeviceOfThread = Device*(bool, char*, std::size_t);
  const auto device_of_thread = reinterpret_cast<DeviceOfThread*>(dlsym(library, "dace_redist_device"));
  std::array<char, 512> error{};
  Device* const device = device_of_thread(false, error.data(), error.size());
  if (device == nullptr) {
    std::printf("no GPU: %s\n", error.data());
    return 77;
  }
  const Index nbytes = argc > 2 ? std::atoll(argv[2]) : Index{1} << 31;
  std::printf("%s\n", device->name().c_str());
  Bench bench(*device, nbytes);
  bench.run("one block", {make_block({nbytes / 8}, {1}, {1})}, 8);
  bench_runs(bench, nbytes);
  bench_permutations(bench, nbytes);
  bench_small_blocks(bench);
  bench_operations(bench, nbytes);
  return bench.good() ? 0 : 1;
}
