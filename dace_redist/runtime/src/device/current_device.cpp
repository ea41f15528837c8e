// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>

#include "device/host_device.hpp"
#include "error.hpp"

namespace dace_redist {

Device& current_device() {
  if (std::getenv(device_variable)) return host_device();
  throw Error("no library for GPUs");
}

}  // namespace dace_redist
