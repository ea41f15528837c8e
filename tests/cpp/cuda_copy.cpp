// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cases of test_device_copy on the GPU in use, and what else a Device promises.
///
/// Usage: cuda_copy LIBRARY [lists] [seed]

#include <dlfcn.h>

#include <cstdlib>

#include "device_copy_cases.hpp"

namespace {

/// Memory of a device that is given away piece by piece.
class Pool {
 public:
  Pool(Device& device, std::int64_t nbytes)
      : memory_(device.allocate(nbytes)), start_(static_cast<char*>(memory_.get())), nbytes_(nbytes) {}

  void clear() { used_ = 0; }
  /// As many bytes as an array has, with the alignment of its address.
  char* take(Memory16& array) {
    const auto nbytes = static_cast<std::int64_t>(array.size());
    used_ = (used_ + 255) / 256 * 256 + static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(array.data()) % 16);
    char* const result = start_ + used_;
    used_ += nbytes;
    if (used_ > nbytes_) throw Error("the pool is too small for this case");
    return result;
  }

 private:
  DeviceHandle memory_;
  char* start_;
  std::int64_t nbytes_, used_ = 0;
};

class CudaCopier : public Copier {
 public:
  explicit CudaCopier(Device& device)
      : Copier(device), device_(device), pool_(device, 1 << 28), own_(device.make_stream()) {}

  void launch(CopyKernel& kernel, std::vector<Memory16>& sources, std::vector<Memory16>& targets) override {
    pool_.clear();
    const std::vector<char*> from = upload(sources), to = upload(targets);
    kernel.launch({from.begin(), from.end()}, to, stream_);
    for (std::size_t i = 0; i < targets.size(); ++i)
      device_.copy(targets[i].data(), to[i], static_cast<std::int64_t>(targets[i].size()), stream_);
    device_.synchronize(stream_);
  }

 private:
  std::vector<char*> upload(std::vector<Memory16>& arrays) {
    std::vector<char*> result;
    for (Memory16& array : arrays) {
      result.push_back(pool_.take(array));
      device_.copy(result.back(), array.data(), static_cast<std::int64_t>(array.size()), stream_);
    }
    return result;
  }

  Device& device_;
  Pool pool_;
  DeviceHandle own_;
  const Stream stream_ = own_.get();
};

bool keeps_its_promises(Device& device) {
  std::vector<char> host(1 << 20);
  const DeviceHandle allocation = device.allocate(1 << 20), one = device.make_stream(), other = device.make_stream(),
                     mark = device.make_event(), pin = device.pin(host.data(), static_cast<std::int64_t>(host.size()));
  char* const memory = static_cast<char*>(allocation.get());
  const Stream first = one.get(), second = other.get();
  const Event event = mark.get();
  bool good = check(device.completed(event), "an event that was never recorded") &&
              check(device.device_of(memory + 5) == device.number(), "device_of memory of the device") &&
              check(device.device_of(host.data()) == -1, "device_of main memory") &&
              check(device.device_of(&good) == -1, "device_of the stack") &&
              check(device.reaches(device.unique_id()), "reaches");
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i * 7);
  const std::vector<char> before = host;
  device.copy(memory, host.data(), 1 << 20, first);
  device.record(event, first);
  device.wait(second, event);
  device.copy(host.data(), memory, 1 << 20, second);
  device.synchronize(second);
  good = check(host == before, "copies in two streams") && check(device.completed(event), "completed") && good;
  DeviceMemoryName name;
  const bool named = device.name_memory(memory + 100, name);
  std::printf("memory %s be named for other processes\n", named ? "can" : "cannot");
  if (named) good = check(name.offset % 256 == 100, "offset in an allocation") && good;
  good = check(!device.name_memory(host.data(), name), "main memory has no name") && good;
  try {
    device.allocate(std::int64_t{1} << 50);
    good = check(false, "too much memory");
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  const auto device_of_thread =
      reinterpret_cast<Device* (*)(bool, char*, std::size_t)>(dlsym(library, "dace_redist_device"));
  std::array<char, 512> error{};
  Device* const device = device_of_thread(false, error.data(), error.size());
  if (device == nullptr) {
    std::printf("no GPU: %s\n", error.data());
    return 77;  // nothing to test
  }
  std::printf("%s\n", device->name().c_str());
  CudaCopier copier(*device);
  const long lists = argc > 2 ? std::atol(argv[2]) : 1000;
  const unsigned seed = argc > 3 ? static_cast<unsigned>(std::atol(argv[3])) : 1;
  return keeps_its_promises(*device) && passes_all_cases(copier, lists, seed) ? 0 : 1;
}
