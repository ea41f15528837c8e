// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <set>
#include <sstream>
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

/// Environment variable: the folder of the libraries for devices, if they are not beside this one.
constexpr const char* folder_variable = "DACE_REDIST_DEVICE_FOLDER";

/// \param need  the need for the library, and how to get it. \throws Error if it cannot be loaded.
DeviceOfThread* load(const std::string& name, const char* need) {
  const char* const given = std::getenv(folder_variable);
  const std::string own = own_path(), folder = given == nullptr ? own.substr(0, own.rfind('/')) : given;
  const std::string path = folder + "/" + name + ".so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(text(need, ": ", dlerror()));
  const auto function = reinterpret_cast<DeviceOfThread*>(dlsym(library, "dace_redist_device"));
  if (function == nullptr) throw Error(text(path, " is of another version: remove it, then run `dace-redist build`"));
  return function;
}

Device& checked(DeviceOfThread* function, bool known_to_mpi) {
  std::array<char, 512> error{};
  Device* const device = function(known_to_mpi, error.data(), error.size());
  if (device == nullptr) throw Error(error.data());
  return *device;
}

/// Environment variable: `host` for main memory in the place of a GPU, and words with commas between, see
/// host_device.cpp.
constexpr const char* device_variable = "DACE_REDIST_DEVICE";

/// Whether the variable has the word `aware`. \throws Error if it has other words than there are.
bool host_is_aware(const std::string& value) {
  static const std::set<std::string> known{"apart", "aware", "pooled", "unnamed"};
  std::set<std::string> words;
  std::istringstream list(value);
  for (std::string word; std::getline(list, word, ',');) {
    if (words.empty() ? word != "host" : known.count(word) == 0)
      throw Error(text(device_variable,
                       ": expected cuda, or host with the words apart, aware, pooled and unnamed, got \"", word, "\""));
    words.insert(word);
  }
  return words.count("aware") != 0;
}

}  // namespace

// A library that cannot be loaded is tried again by the next call: a static variable whose initializer throws is not
// initialized.
Device& current_device() {
  const char* const given = std::getenv(device_variable);
  const std::string chosen = given == nullptr ? "" : given;
  if (chosen.empty() || chosen == "cuda") {
    static DeviceOfThread* const function =
        load("libdace_redist_cuda",
             "arrays in the memory of a GPU need libdace_redist_cuda, which `dace-redist build` makes where nvcc is");
    static const bool known_to_mpi = mpi_knows_cuda();
    return checked(function, known_to_mpi);
  }
  const bool aware = host_is_aware(chosen);
  static DeviceOfThread* const function =
      load("libdace_redist_host_device",
           "main memory in the place of a GPU needs libdace_redist_host_device, which `DACE_REDIST_DEVICE=host "
           "dace-redist build` makes");
  return checked(function, aware);
}

}  // namespace dace_redist
