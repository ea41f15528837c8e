// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Compares the tile kernels of a device, run by the processor, with a loop over elements and with ElementKernel, on
/// many random lists of blocks.
///
/// Usage: test_device_copy [lists] [seed]

#include <cstdlib>
#include <string>

#include "host_tiles.hpp"
#include "device/tile_kernels.hpp"
#include "device_copy_cases.hpp"

namespace {

bool divides() {
  Random random(3);
  for (int i = 0; i < 100000; ++i) {
    const auto number = static_cast<std::uint32_t>(random.between(0, (Index{1} << random.between(1, 31)) - 1));
    const auto divisor = static_cast<std::uint32_t>(random.between(1, Index{1} << random.between(0, 31)));
    if (Divisor(divisor).quotient(number) != number / divisor) return false;
  }
  return true;
}

/// Runs launches by the processor.
class HostRunner : public TileRunner {
 public:
  DeviceHandle upload(const void* bytes, std::int64_t nbytes) override {
    const DeviceHandle memory(std::malloc(static_cast<std::size_t>(nbytes)), std::free);
    std::memcpy(memory.get(), bytes, static_cast<std::size_t>(nbytes));
    return memory;
  }
  void run(const TileLaunch& launch, Stream) override { run_tiles(launch); }
};

/// Dimensions longer than an index of 32 bits, strides longer than 32 bits: only where words lie, nothing is copied.
class HugeBlock : public HostRunner {
 public:
  bool good() {
    CopyKernel(*this, {{block_, 0, 0}}, {8, 8, nullptr}).launch({base}, {base}, nullptr);
    return good_ && words_ == block_.count();
  }

  void run(const TileLaunch& launch, Stream) override {
    for (std::uint32_t g = 0; g < launch.group_count; ++g) {
      const TileGroup& group = launch.groups[launch.first_group + g];
      words_ += group.steps;
      for (int i = 0; i < 2000; ++i) {
        std::uint32_t steps[1] = {static_cast<std::uint32_t>(random_.between(0, group.steps - 1))};
        TileAddresses at[1];
        locate(launch, group, steps, at);
        // which element that is, from its address in the source
        const Index source = (at[0].source - base) / 8, target = (at[0].target - base) / 8;
        const Index outer = source >> 36, middle = (source & ((Index{1} << 36) - 1)) / 4, inner = source % 4;
        good_ = good_ && outer < 5 && middle < block_.counts[1] && inner < 3 &&
                target == outer * (Index{1} << 37) + middle * 8 - inner * 2;
      }
    }
  }

 private:
  char* const base = reinterpret_cast<char*>(Index{1} << 45);  // nothing is read there
  const StridedBlock block_{3, 0, 0, {5, (Index{1} << 32) + 7, 3}, {Index{1} << 36, 4, 1}, {Index{1} << 37, 8, -2}};
  Random random_{7};
  Index words_ = 0;
  bool good_ = true;
};

/// Conversions that a device does not make, and elements that are not aligned to their size, are errors.
bool refuses() {
  const auto fails = [](ElementType source, ElementType target, Index shift, const std::string& with) {
    ElementOperation operation;
    operation.source = source;
    operation.target = target;
    operation.alpha = 2;
    const ElementKernel elements(operation);
    StridedBlock block;
    std::vector<Memory16> arrays(2, Memory16(64, 0));
    try {
      HostRunner runner;
      CopyKernel kernel(runner, {{block, 0, 0}}, {element_bytes_of(source), element_bytes_of(target), &elements});
      kernel.launch({arrays[0].data() + shift}, {arrays[1].data()}, nullptr);
    } catch (const Error& error) {
      return std::string(error.what()).find(with) != std::string::npos;
    }
    return with.empty();
  };
  return fails(ElementType::int32, ElementType::float64, 0, "from int32 to float64 on a GPU, only between float32") &&
         fails(ElementType::float64, ElementType::complex128, 0, "from float64 to complex128 on a GPU") &&
         fails(ElementType::float64, ElementType::float64, 4, "elements of 8 bytes that are computed with must be") &&
         fails(ElementType::complex64, ElementType::complex128, 0, "") &&
         fails(ElementType::float32, ElementType::float64, 4, "");
}

class HostCopier : public Copier {
 public:
  using Copier::Copier;
  void launch(CopyKernel& kernel, std::vector<Memory16>& sources, std::vector<Memory16>& targets) override {
    std::vector<const char*> from;
    std::vector<char*> to;
    for (Memory16& array : sources) from.push_back(array.data());
    for (Memory16& array : targets) to.push_back(array.data());
    kernel.launch(from, to, nullptr);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const long lists = argc > 1 ? std::atol(argv[1]) : 3000;
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atol(argv[2])) : 1;
  HostRunner runner;
  HostCopier copier(runner);
  const bool good = check(divides(), "Divisor") && check(HugeBlock().good(), "words of huge blocks") &&
                    check(refuses(), "errors") && passes_all_cases(copier, lists, seed);
  return good ? 0 : 1;
}
