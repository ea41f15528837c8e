// SPDX-License-Identifier: BSD-3-Clause
#include "shm/array_allocator.hpp"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shm/arena.hpp"

namespace dace_redist {
namespace {

/// Null if there is too little node-shared memory.
void* allocate_on_node(std::size_t nbytes, bool zero) noexcept {
  if (nbytes > PTRDIFF_MAX / 2) return nullptr;
  try {
    const Arena::Allocation made = Arena::allocate(static_cast<std::int64_t>(nbytes), true);
    if (zero && !made.zeros) std::memset(made.bytes, 0, nbytes);
    return made.bytes;
  } catch (const Error& error) {
    warn_fallback_once(error);
  } catch (const std::bad_alloc&) {  // of the error's text
  }
  return nullptr;
}

/// Bytes that an array of this process may use; of a parent's array unknown, 0.
std::size_t capacity(void* array) {
  if (!is_in_arena(array)) return Arena::is_inherited(array) ? 0 : malloc_usable_size(array);
  const Arena& arena = *Arena::made();
  return static_cast<std::size_t>(arena.nbytes_at(arena.offset_of(array)));
}

}  // namespace

void warn_fallback_once(const Error& error) {
  static std::atomic<bool> warned{false};
  warn_once(warned, "dace-redist: %s; using ordinary memory\n", error.what());
}

void* allocate_array(std::size_t nbytes, bool zero, std::size_t min_shared) noexcept {
  if (nbytes >= min_shared)
    if (void* const bytes = allocate_on_node(nbytes, zero)) return bytes;
  const std::size_t at_least_one = std::max<std::size_t>(nbytes, 1);
  return zero ? std::calloc(at_least_one, 1) : std::malloc(at_least_one);
}

void* resize_array(void* array, std::size_t nbytes) noexcept {
  if (!array) return allocate_array(nbytes, false);
  const bool ordinary = !is_in_arena(array) && !Arena::is_inherited(array);
  if (ordinary && nbytes < min_shared_bytes) return std::realloc(array, std::max<std::size_t>(nbytes, 1));
  const std::size_t before = Arena::is_inherited(array) ? nbytes : capacity(array);
  if (!ordinary && nbytes >= min_shared_bytes && nbytes <= before && nbytes >= before / 2) return array;
  void* const made = allocate_array(nbytes, false);
  if (!made) return nullptr;
  std::memcpy(made, array, std::min(nbytes, before));
  free_array(array);
  return made;
}

void free_array(void* array) noexcept {
  if (is_in_arena(array))
    Arena::free(array);
  else if (!Arena::is_inherited(array))
    std::free(array);
}

}  // namespace dace_redist
