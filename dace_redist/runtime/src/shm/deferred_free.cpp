// SPDX-License-Identifier: BSD-3-Clause
#include "shm/deferred_free.hpp"

#include <list>
#include <mutex>
#include <utility>

#include "shm/arena.hpp"

namespace dace_redist {
namespace {

struct Deferred {
  std::mutex guard;
  std::list<std::pair<void*, std::function<bool()>>> waiting;
};

Deferred& deferred() {
  static auto* const all = new Deferred;
  return *all;
}

}  // namespace

void free_when(void* memory, std::function<bool()> unused) {
  {
    const std::lock_guard<std::mutex> locked(deferred().guard);
    deferred().waiting.emplace_back(memory, std::move(unused));
  }
  sweep_deferred();
}

void sweep_deferred() {
  const std::lock_guard<std::mutex> locked(deferred().guard);
  deferred().waiting.remove_if([](const auto& one) {
    if (!one.second()) return false;
    Arena::free(one.first);
    return true;
  });
}

}  // namespace dace_redist
