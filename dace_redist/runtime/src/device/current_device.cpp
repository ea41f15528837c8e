// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>

#include "device/device.hpp"

namespace dace_redist {
namespace {

/// dace_redist_device() of a library beside this one. Null if there is no device to use, and why.
using DeviceOfThread = Device*(bool known_to_mpi, char* error, std::size_t nbytes);

/// The path of the shared library with this function.
std::string own_path() {
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<void*>(&current_device), &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : "";
}

/// Calls MPIX_Query_cuda_support(), an extension of Open MPI and MPICH, which this library is linked to. Returns false
/// without it.
bool mpi_knows_cuda() {
  void* const self = dlopen(own_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (self == nullptr) return false;
  const auto query = reinterpret_cast<int (*)()>(dlsym(self, "MPIX_Query_cuda_support"));
  const bool known = query != nullptr && query() == 1;
  dlclose(self);
  return known;
}

/// Environment variable: the folder of the library for GPUs, if it is not beside this one.
constexpr const char* folder_variable = "DACE_REDIST_DEVICE_FOLDER";

/// \param need  the need for the library, and how to get it. \throws Error if it cannot be loaded.
DeviceOfThread* load(const std::string& path, const char* need) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(text(need, ": ", dlerror()));
  const auto function = reinterpret_cast<DeviceOfThread*>(dlsym(library, "dace_redist_device"));
  if (function == nullptr) throw Error(text(path, " is of another version: remove it, then run `dace-redist build`"));
  return function;
}

/// The path of the library for GPUs.
std::string cuda_path() {
  const char* const given = std::getenv(folder_variable);
  const std::string own = own_path(), folder = given == nullptr ? own.substr(0, own.rfind('/')) : given;
  return folder + "/libdace_redist_cuda.so";
}

/// Environment variable: `cuda`, or the path of a library for another device.
constexpr const char* device_variable = "DACE_REDIST_DEVICE";

}  // namespace

// A library that cannot be loaded is tried again by the next call: a static variable whose initializer throws is not
// initialized.
Device& current_device() {
  const char* const given = std::getenv(device_variable);
  const std::string chosen = given == nullptr || *given == '\0' ? "cuda" : given;
  static DeviceOfThread* const function =
      chosen == "cuda"
          ? load(
                cuda_path(),
                "arrays in the memory of a GPU need libdace_redist_cuda, which `dace-redist build` makes where nvcc is")
          : load(chosen, "DACE_REDIST_DEVICE must be cuda, or the path of a library for another device");
  static const bool known_to_mpi = chosen == "cuda" && mpi_knows_cuda();
  std::array<char, 512> error{};
  Device* const device = function(known_to_mpi, error.data(), error.size());
  if (device == nullptr) throw Error(error.data());
  return *device;
}

}  // namespace dace_redist
