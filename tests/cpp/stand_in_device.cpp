// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Main memory in the place of a device, for tests where there is no GPU: everything above the interface runs as it
/// does with one. It orders no more than a GPU does: work that is enqueued runs late, and streams take turns at random,
/// so that a missing wait for an event shows in the result. DACE_REDIST_DEVICE names the library that it is compiled to.
///
/// Words of STAND_IN_DEVICE: `apart`, each rank has a device of its own, which others do not reach;
/// `aware`, MPI takes its addresses; `unnamed`, other ranks cannot map its memory; `pooled`, they can map memory that
/// plans allocate, but not arrays of programs, as with CUDA's stream-ordered allocator.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "device/device.hpp"
#include "host_tiles.hpp"
#include "shm/arena.hpp"
#include "shm/peer_arena.hpp"

namespace dace_redist {
namespace {

/// Whether a record of an event has been reached.
using Reached = std::shared_ptr<bool>;

/// The target of an Event: its last record, null before the first. A wait is for the record that was last then.
struct Mark {
  Reached last;
};

/// An entry of a stream: work, or a record to wait for.
struct Enqueued {
  std::function<void()> work;
  Reached waits_for;
};

using Queue = std::deque<Enqueued>;

class HostDevice final : public Device {
  using Guard = std::lock_guard<std::recursive_mutex>;

 public:
  explicit HostDevice(const std::string& words)
      : Device(words.find("aware") != std::string::npos),
        apart_(words.find("apart") != std::string::npos),
        unnamed_(words.find("unnamed") != std::string::npos),
        pooled_(words.find("pooled") != std::string::npos) {}

  std::string name() const override { return "main memory in the place of a GPU"; }
  int number() const override { return 0; }
  std::array<char, 16> unique_id() const override {
    std::array<char, 16> id{};
    const std::int64_t numbers[2] = {1, apart_ ? getpid() : 0};
    std::memcpy(id.data(), numbers, sizeof numbers);
    return id;
  }
  int make_current() override { return times_current_++; }
  void restore(int /*number*/) noexcept override { --times_current_; }

  DeviceHandle allocate(std::int64_t nbytes) override {
    const Guard guard(mutex_);
    nbytes = std::max<std::int64_t>(nbytes, 1);
    const bool by_plan = times_current_ > 0;
    DeviceHandle memory;
    if (unnamed_ || (pooled_ && !by_plan))
      memory.reset(std::malloc(static_cast<std::size_t>(nbytes)), std::free);
    else
      memory.reset(Arena::allocate(nbytes, false).bytes, Arena::free);
    return add(std::move(memory), nbytes);
  }

  DeviceHandle pin(void* memory, std::int64_t nbytes) override {
    const Guard guard(mutex_);
    pinned_[static_cast<char*>(memory)] = nbytes;
    return held(memory, [this](void* unpinned) { pinned_.erase(static_cast<char*>(unpinned)); });
  }

  int device_of(const void* address) const override {
    const Guard guard(mutex_);
    return find(address) == allocations_.end() ? -1 : 0;
  }

  DeviceHandle make_stream() override {
    const Guard guard(mutex_);
    return held(queues_.emplace_back(std::make_unique<Queue>()).get(),
                [this](void* stream) { queues_.remove_if([&](const auto& queue) { return queue.get() == stream; }); });
  }
  DeviceHandle make_event() override {
    return held(new Mark, [](void* event) { delete static_cast<Mark*>(event); });
  }
  void record(Event event, Stream stream) override {
    const Guard guard(mutex_);
    Mark* const mark = static_cast<Mark*>(event);
    mark->last = std::make_shared<bool>(false);
    queue(stream).push_back({[reached = mark->last] { *reached = true; }, nullptr});
  }
  void wait(Stream stream, Event event) override {
    const Guard guard(mutex_);
    Mark* const mark = static_cast<Mark*>(event);
    if (mark->last) queue(stream).push_back({{}, mark->last});
  }
  bool completed(Event event) override {
    const Guard guard(mutex_);
    const Mark& mark = *static_cast<Mark*>(event);
    if (!mark.last) return true;
    if (!*mark.last) run_one();
    return *mark.last;
  }
  void synchronize(Stream stream) override {
    const Guard guard(mutex_);
    while (!queue(stream).empty()) run_one();
  }

  void copy(void* target, const void* source, std::int64_t nbytes, Stream stream) override {
    const Guard guard(mutex_);
    for (const void* const end : {static_cast<const void*>(target), source})
      if (nbytes > 0 && find(end) == allocations_.end() && !is_pinned(end, nbytes))
        throw Error("copies of a device must be between its own memory and pinned memory");
    queue(stream).push_back({[=] { std::memmove(target, source, static_cast<std::size_t>(nbytes)); }, nullptr});
  }

  DeviceHandle upload(const void* bytes, std::int64_t nbytes) override {
    const DeviceHandle memory(std::malloc(static_cast<std::size_t>(nbytes)), std::free);
    std::memcpy(memory.get(), bytes, static_cast<std::size_t>(nbytes));
    return held(memory.get(), [memory](void*) {});
  }
  void run(const TileLaunch& launch, Stream stream) override {
    const Guard guard(mutex_);
    queue(stream).push_back({[launch] { run_tiles(launch); }, nullptr});
  }

  bool name_memory(const void* memory, DeviceMemoryName& name) override {
    const Guard guard(mutex_);
    const auto found = find(memory);
    if (found == allocations_.end() || unnamed_) return false;
    const Handle handle{Arena::own().name(), Arena::own().offset_of(found->first), found->second.nbytes};
    if (handle.offset < 0) return false;
    std::memcpy(name.handle.data(), &handle, sizeof handle);
    name.allocation = found->second.number;
    name.offset = static_cast<const char*>(memory) - found->first;
    name.process = getpid();
    return true;
  }
  bool reaches(const std::array<char, 16>& unique_id) override { return unique_id == this->unique_id(); }
  DeviceHandle map(const DeviceMemoryName& name) override {
    const Guard guard(mutex_);
    Handle handle;
    std::memcpy(&handle, name.handle.data(), sizeof handle);
    const auto peer = PeerArena::map(handle.arena);
    return add({peer, peer->at(handle.offset)}, handle.nbytes);
  }

 private:
  /// Memory of this process, or of another one.
  struct Allocation {
    std::int64_t nbytes = 0;
    std::uint64_t number = 0;
    int users = 0;
  };
  /// The name of an allocation for other processes.
  struct Handle {
    ArenaName arena;
    std::int64_t offset = 0, nbytes = 0;
  };
  static_assert(sizeof(Handle) <= sizeof DeviceMemoryName::handle);
  using Allocations = std::map<const char*, Allocation>;

  /// A handle that runs all work before `release`, as cudaFree does.
  template <class Release>
  DeviceHandle held(void* object, const Release& release) {
    return {object, [this, release](void* released) {
              const Guard guard(mutex_);
              run_all();
              release(released);
            }};
  }

  /// Registers memory of the device as long as the result is held.
  DeviceHandle add(DeviceHandle memory, std::int64_t nbytes) {
    const char* const start = static_cast<char*>(memory.get());
    Allocation& allocation = allocations_[start];
    if (allocation.users++ == 0) allocation.number = ++number_;
    allocation.nbytes = std::max(allocation.nbytes, nbytes);
    return held(memory.get(), [this, memory, start](void*) {
      if (--allocations_[start].users == 0) allocations_.erase(start);
    });
  }

  Allocations::const_iterator find(const void* address) const {
    const char* const bytes = static_cast<const char*>(address);
    auto next = allocations_.upper_bound(bytes);
    if (next == allocations_.begin()) return allocations_.end();
    --next;
    return bytes < next->first + next->second.nbytes ? next : allocations_.end();
  }

  bool is_pinned(const void* memory, std::int64_t nbytes) const {
    const char* const bytes = static_cast<const char*>(memory);
    auto next = pinned_.upper_bound(bytes);
    return next != pinned_.begin() && bytes + nbytes <= std::prev(next)->first + std::prev(next)->second;
  }

  Queue& queue(Stream stream) { return stream ? *static_cast<Queue*>(stream) : default_queue_; }

  /// Runs the next entry of a random stream; does nothing if every stream is empty or waits.
  void run_one() {
    std::vector<Queue*> ready;
    const auto consider = [&](Queue& queue) {
      while (!queue.empty() && queue.front().waits_for && *queue.front().waits_for) queue.pop_front();
      if (!queue.empty() && !queue.front().waits_for) ready.push_back(&queue);
    };
    consider(default_queue_);
    for (const auto& queue : queues_) consider(*queue);
    if (ready.empty()) return;
    Queue& chosen = *ready[random_() % ready.size()];
    const Enqueued next = std::move(chosen.front());
    chosen.pop_front();
    next.work();
  }

  void run_all() {
    const auto is_filled = [](const auto& queue) { return !queue->empty(); };
    while (!default_queue_.empty() || std::any_of(queues_.begin(), queues_.end(), is_filled)) run_one();
  }

  mutable std::recursive_mutex mutex_;
  Allocations allocations_;                     // by start; also mapped ones of other processes
  std::map<const char*, std::int64_t> pinned_;  // bytes by start
  std::list<std::unique_ptr<Queue>> queues_;
  Queue default_queue_;
  std::uint64_t number_ = 0;
  std::minstd_rand random_{static_cast<unsigned>(getpid())};
  const bool apart_, unnamed_, pooled_;
  inline static thread_local int times_current_ = 0;  // above 0 in calls of plans, not of programs
};

}  // namespace
}  // namespace dace_redist

/// The stand-in of this process.
extern "C" DR_API dace_redist::Device* dace_redist_device(bool /*known_to_mpi*/, char* /*error*/, std::size_t /*nbytes*/) {
  static dace_redist::HostDevice device(std::getenv("STAND_IN_DEVICE"));
  return &device;
}
