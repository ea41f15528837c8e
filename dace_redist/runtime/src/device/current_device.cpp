// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>

#include "device/device.hpp"
#include "device/host_device.hpp"

namespace dace_redist {

namespace {

using DeviceCount = int(char* error, std::size_t nbytes);
using DeviceOfThread = Device*(bool known_to_mpi, char* error, std::size_t nbytes);
using HostDeviceOfProcess = Device*(char* error, std::size_t nbytes);

/// The functions of libdace_redist_cuda.
struct CudaLibrary {
  DeviceCount* count;
  DeviceOfThread* device;
};

/// The path of the shared library that this is in.
std::string own_path() {
  Dl_info found;
  const bool known = dladdr(reinterpret_cast<void*>(&current_device), &found) != 0 && found.dli_fname != nullptr;
  return known ? found.dli_fname : "";
}

/// Its folder.
std::string own_folder() {
  const std::string path = own_path();
  const std::size_t end = path.rfind('/');
  return end == std::string::npos ? "." : path.substr(0, end);
}

/// What MPIX_Query_cuda_support() says, an extension of Open MPI and MPICH, which this library is linked to; without
/// it: no.
bool mpi_knows_cuda() {
  void* const self = dlopen(own_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (self == nullptr) return false;
  const auto query = reinterpret_cast<int (*)()>(dlsym(self, "MPIX_Query_cuda_support"));
  const bool known = query != nullptr && query() == 1;
  dlclose(self);
  return known;
}

/// A library beside this one. \param need  what needs it, and how to get it. \throws Error if it cannot be loaded.
void* load(const std::string& name, const char* need) {
  void* const library = dlopen((own_folder() + "/" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(text(need, ": ", dlerror()));
  return library;
}

template <class Function>
Function* find(void* library, const char* name) {
  const auto function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr)
    throw Error(text("a library beside ", own_path(), " is of another version, it has no ", name,
                     ": remove them, then run `dace-redist build`"));
  return function;
}

CudaLibrary load_cuda_library() {
  void* const library = load("libdace_redist_cuda",
                             "arrays in the memory of a GPU need libdace_redist_cuda, which `dace-redist build` makes "
                             "where nvcc is");
  return {find<DeviceCount>(library, "dace_redist_cuda_device_count"),
          find<DeviceOfThread>(library, "dace_redist_cuda_device")};
}

Device& cuda_device() {
  static const CudaLibrary library = load_cuda_library();  // tried again as long as it fails
  std::array<char, 512> error{};
  if (library.count(error.data(), error.size()) < 0) throw Error(text("no GPU can be used here: ", error.data()));
  static const bool known_to_mpi = mpi_knows_cuda();
  Device* const device = library.device(known_to_mpi, error.data(), error.size());
  if (device == nullptr) throw Error(error.data());
  return *device;
}

Device& host_device() {
  static auto* const make = find<HostDeviceOfProcess>(
      load("libdace_redist_host_device",
           "main memory in the place of a GPU needs libdace_redist_host_device, which `DACE_REDIST_DEVICE=host "
           "dace-redist build` makes"),
      "dace_redist_host_device");
  std::array<char, 512> error{};
  Device* const device = make(error.data(), error.size());
  if (device == nullptr) throw Error(error.data());
  return *device;
}

}  // namespace

Device& current_device() {
  const char* const given = std::getenv(device_variable);
  const std::string chosen = given == nullptr ? "" : given;
  if (chosen.empty() || chosen == "cuda") return cuda_device();
  if (chosen.substr(0, chosen.find(',')) != "host") throw unknown_word(chosen);
  return host_device();
}

}  // namespace dace_redist
