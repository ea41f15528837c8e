// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which device current_device() chooses, and what it says where there is none.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/current_device.cpp"
#include "device/host_device.cpp"

namespace {

/// Whether current_device() fails with a message that holds a text.
bool fails(const std::string& with) {
  try {
    dace_redist::current_device();
  } catch (const dace_redist::Error& error) {
    if (std::string(error.what()).find(with) != std::string::npos) return true;
    std::printf("FAILED: expected \"%s\", got \"%s\"\n", with.c_str(), error.what());
    return false;
  }
  std::printf("FAILED: expected \"%s\"\n", with.c_str());
  return false;
}

}  // namespace

int main() {
  unsetenv("DACE_REDIST_DEVICE");
  if (!fails("libdace_redist_cuda, which `dace-redist build` makes where nvcc is")) return 1;
  setenv("DACE_REDIST_DEVICE", "gpu", 1);
  if (!fails("DACE_REDIST_DEVICE: expected cuda, or host with the words apart, aware, pooled and unnamed, got \"gpu\""))
    return 1;
  setenv("DACE_REDIST_DEVICE", "host,apart", 1);
  if (!fails("libdace_redist_host_device, which `DACE_REDIST_DEVICE=host dace-redist build` makes")) return 1;
  char error[256] = "";
  setenv("DACE_REDIST_DEVICE", "host,near", 1);
  if (dace_redist_host_device(error, sizeof error) != nullptr ||
      std::string(error).find("got \"near\"") == std::string::npos)
    return 1;
  setenv("DACE_REDIST_DEVICE", "host", 1);
  const dace_redist::Device* const device = dace_redist_host_device(error, sizeof error);
  return device == nullptr || device->name().find("main memory") == std::string::npos;
}
