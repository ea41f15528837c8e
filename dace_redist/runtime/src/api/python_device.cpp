// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// What the package's Python calls for arrays of its own in a device's memory.

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "api/handles.hpp"
#include "device/device_objects.hpp"

namespace {

/// Allocations of Python's arrays, by address.
std::map<void*, dace_redist::DeviceHandle> arrays;
std::mutex guard;

}  // namespace

extern "C" {

/// Writes the name of the calling thread's device, cut to `nbytes` with the zero at its end.
DR_API int dr_python_device_name(char* name, std::int64_t nbytes) {
  using namespace dace_redist;
  return guarded(DR_ERROR_MEMORY, "GPU", [&] {
    const std::string found = current_device().name();
    name[found.copy(name, static_cast<std::size_t>(nbytes) - 1)] = '\0';
  });
}

/// Waits for what was enqueued on the default stream.
DR_API int dr_python_device_synchronize() {
  using namespace dace_redist;
  return guarded(DR_ERROR_EXECUTE, "GPU", [&] { current_device().synchronize(nullptr); });
}

DR_API int dr_python_device_allocate(std::int64_t nbytes, void** memory) {
  using namespace dace_redist;
  return guarded(DR_ERROR_MEMORY, "DeviceArray", [&] {
    const DeviceHandle made = nbytes > 0 ? current_device().allocate(nbytes) : nullptr;
    *memory = made.get();
    const std::lock_guard<std::mutex> locked(guard);
    if (made) arrays[*memory] = made;
  });
}

DR_API void dr_python_device_free(void* memory) {
  using namespace dace_redist;
  const std::lock_guard<std::mutex> locked(guard);
  arrays.erase(memory);
}

/// Copies between main memory, of which only one side is, and the device's; waits for what was enqueued before.
DR_API int dr_python_device_copy(void* target, const void* source, std::int64_t nbytes) {
  using namespace dace_redist;
  return guarded(DR_ERROR_EXECUTE, "DeviceArray", [&] {
    if (nbytes == 0) return;
    Device& device = current_device();
    const bool from_device = device.device_of(source) >= 0;
    const PinnedBuffer staged(device, nbytes);
    if (!from_device) std::memcpy(staged.at(0), source, static_cast<std::size_t>(nbytes));
    device.copy(from_device ? staged.at(0) : target, from_device ? source : staged.at(0), nbytes, nullptr);
    device.synchronize(nullptr);
    if (from_device) std::memcpy(target, staged.at(0), static_cast<std::size_t>(nbytes));
  });
}

}  // extern "C"
