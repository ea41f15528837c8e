// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/host_device.hpp"
#include "error.hpp"

namespace dace_redist {

namespace {

using DeviceCount = int(char* error, std::size_t nbytes);
using DeviceOfNumber = Device*(int number, char* error, std::size_t nbytes);

/// The functions of libdace_redist_cuda.
struct CudaLibrary {
  DeviceCount* count;
  DeviceOfNumber* device;
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

CudaLibrary load_cuda_library() {
  const std::string path = own_folder() + "/libdace_redist_cuda.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(text("arrays in the memory of a GPU need libdace_redist_cuda, which `dace-redist build` makes where ",
                     "nvcc is: ", dlerror()));
  const CudaLibrary functions{reinterpret_cast<DeviceCount*>(dlsym(library, "dace_redist_cuda_device_count")),
                              reinterpret_cast<DeviceOfNumber*>(dlsym(library, "dace_redist_cuda_device"))};
  if (functions.count == nullptr || functions.device == nullptr)
    throw Error(text(path, " is of another version: remove it, then run `dace-redist build`"));
  return functions;
}

Device& cuda_device() {
  static const CudaLibrary library = load_cuda_library();  // tried again as long as it fails
  std::array<char, 512> error{};
  if (library.count(error.data(), error.size()) < 0) throw Error(text("no GPU can be used here: ", error.data()));
  Device* const device = library.device(-1, error.data(), error.size());
  if (device == nullptr) throw Error(error.data());
  static const bool known_to_mpi = mpi_knows_cuda();
  device->set_known_to_mpi(known_to_mpi);
  return *device;
}

}  // namespace

Device& current_device() {
  const char* const chosen = std::getenv(device_variable);
  return chosen == nullptr || *chosen == '\0' || std::strcmp(chosen, "cuda") == 0 ? cuda_device() : host_device();
}

}  // namespace dace_redist
