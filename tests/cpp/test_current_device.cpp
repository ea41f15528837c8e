// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The errors of current_device() where there is no device.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/device.hpp"

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
  setenv("DACE_REDIST_DEVICE", "host,near", 1);
  return fails("got \"near\"") ? 0 : 1;
}
