// Two threads act as two ranks of a node over one arena: the protocols of messages, and the bell. For ThreadSanitizer,
// which sees one process only. MPI is linked, but not started.
//
// Usage: threads
//
// Linked without transport/context.cpp, and with -Wl,--wrap=mmap,--wrap=munmap,--wrap=process_vm_readv.

#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "shm/arena.hpp"
#include "transport/context.hpp"
#include "transport/node_channel.hpp"
#include "transport/transports.hpp"

namespace {

std::atomic<void*> arena{nullptr};
std::atomic<bool> kernel_refuses{false};

}  // namespace

extern "C" {
void* __real_mmap(void* address, std::size_t nbytes, int protection, int flags, int descriptor, off_t offset);
int __real_munmap(void* address, std::size_t nbytes);
ssize_t __real_process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                unsigned long there_count, unsigned long flags);

/// Maps the arena once: the sanitizer takes another mapping for other memory.
void* __wrap_mmap(void* address, std::size_t nbytes, int protection, int flags, int descriptor, off_t offset) {
  const bool is_arena = (flags & MAP_SHARED) != 0 && descriptor >= 0;
  if (is_arena && arena.load()) return arena.load();
  void* const mapped = __real_mmap(address, nbytes, protection, flags, descriptor, offset);
  if (is_arena && mapped != MAP_FAILED) arena = mapped;
  return mapped;
}
int __wrap_munmap(void* address, std::size_t nbytes) {
  return address == arena.load() ? 0 : __real_munmap(address, nbytes);
}
ssize_t __wrap_process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                unsigned long there_count, unsigned long flags) {
  return kernel_refuses ? -1 : __real_process_vm_readv(process, here, here_count, there, there_count, flags);
}
}

namespace dace_redist {

/// A context of the next rank, in place of that of a communicator.
std::shared_ptr<Context> Context::of(MPI_Comm) {
  static int ranks = 0;
  std::shared_ptr<Context> made(new Context(MPI_COMM_NULL));
  made->rank_ = ranks++;
  made->number_ = 1;
  made->arenas_.assign(2, PeerArena::map(Arena::own().name()));
  return made;
}
Context::Context(MPI_Comm) {}
void Context::close() {}
PeerArena* Context::arena_of(int rank) const { return arenas_[static_cast<std::size_t>(rank)].get(); }

}  // namespace dace_redist

namespace {

using namespace dace_redist;

constexpr int transfers = 24;

void require(bool holds, const char* what, const char* which = "") {
  if (holds) return;
  std::fprintf(stderr, "%s %s\n", what, which);
  std::exit(1);
}

/// Lets two threads go on when both have come, as an agreement of ranks does.
class Meeting {
 public:
  void come() {
    std::unique_lock<std::mutex> locked(guard_);
    const int turn = turn_;
    if (++came_ == 2) {
      came_ = 0;
      ++turn_;
      both_.notify_all();
    }
    both_.wait(locked, [&] { return turn_ != turn; });
  }

 private:
  std::mutex guard_;
  std::condition_variable both_;
  int came_ = 0, turn_ = 0;
};

Meeting meeting;

/// A matrix of doubles that one rank sends to the other, whose array has rows twice as long.
struct Case {
  const char* name;
  Index rows, columns;
  bool source_shared, target_shared;
  bool reduces = false;  ///< whether the receiver adds it to a matrix of its own
};

class Array {
 public:
  Array(Index count, bool shared)
      : shared_(shared),
        bytes_(shared ? Arena::allocate(count * Index{sizeof(double)}, false).bytes
                      : std::malloc(static_cast<std::size_t>(count) * sizeof(double))) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { shared_ ? Arena::free(bytes_) : std::free(bytes_); }
  double* numbers() const { return static_cast<double*>(bytes_); }

 private:
  bool shared_;
  void* bytes_;
};

/// The part of one rank in some transfers. In most of them it polls: a bell orders the accesses of two threads, too.
/// \param plan  number of the plan, by which the ranks change sides.
void move(const Case& chosen, Context& context, std::int64_t plan) {
  const bool sends = (context.rank() + plan / 2) % 2 == 0;
  const Index rows = chosen.rows, columns = chosen.columns, count = rows * columns;
  const Array source(count, chosen.source_shared), target(2 * count, chosen.target_shared);
  Tensors tensors;
  Tensor& tensor = *tensors.emplace_back(std::make_unique<Tensor>());
  tensor.reduces = chosen.reduces;
  if (chosen.reduces) {
    tensor.operation.source = tensor.operation.target = ElementType::float64;
    tensor.operation.reduction = Reduction::sum;
    tensor.reduction.set(tensor.operation, sizeof(double));
  }
  tensor.steps.set(tensor.operation, sizeof(double));
  PeerMessage message;
  message.peer = 1 - context.rank();
  message.nbytes = count * Index{sizeof(double)};
  message.blocks.push_back({0, {2, 0, 0, {rows, columns}, {columns, 1}, {2 * columns, 1}}});
  Messages messages;
  if (chosen.reduces && !sends) {
    messages.self = message;
    messages.self.peer = context.rank();
    message.step = message.summand = 1;
  }
  (sends ? messages.sends : messages.receives).push_back(message);
  Options options = default_options();
  options.slot_bytes = 16 << 10;  // more pieces than slots
  const Topology topology{{0, 0}, {0, 1}};
  const Link link{context, topology, tensors, options, plan, plan, MPI_COMM_NULL, 0, nullptr};
  const std::unique_ptr<Transport> transport = make_node(link, messages);
  meeting.come();
  transport->connect();
  const char* const sources[] = {reinterpret_cast<const char*>(source.numbers())};
  char* const targets[] = {reinterpret_cast<char*>(target.numbers())};
  const double own = chosen.reduces ? 0.5 : 0;
  for (int turn = 1; turn <= transfers; ++turn) {
    std::fill_n(source.numbers(), count, sends ? turn : own);
    if (!sends) std::fill_n(target.numbers(), 2 * count, -1.0);
    transport->begin({sources, targets}, Pace::attended);
    while (!transport->done()) look_or_sleep(Arena::own().head().waiting, 50000, [&] { return transport->progress(); });
    for (Index i = 0; !sends && i < 2 * count; ++i)
      require(target.numbers()[i] == (i / columns % 2 == 0 ? turn + own : -1.0), "wrong element after", chosen.name);
  }
}

/// Two threads wake each other in turns; a ring that is lost leaves both asleep. Before each turn, the other thread is
/// rung for nothing while it falls asleep a few times.
void ring_in_turns(int thread) {
  constexpr int turns = 2000, looks_for_nothing = 50;
  static Bell bells[2]{};
  static std::atomic<int> done{0}, looks[2]{};
  const auto my_turn = [thread](int turn) {
    ++looks[thread];
    return done.load(std::memory_order_acquire) == turn;
  };
  const int other = 1 - thread;
  for (int turn = thread; turn < turns; turn += 2) {
    while (!look_or_sleep(bells[thread], 0, [&] { return my_turn(turn); })) {
    }
    for (const int looked = looks[other]; turn + 1 < turns && looks[other] - looked < looks_for_nothing;)
      ring(bells[other]);
    done.store(turn + 1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring(bells[other]);
  }
}

/// No piece is longer than the option, however many receivers share the cache.
void check_pieces() {
  Options options = default_options();
  for (const Index slot_bytes : {1, 1000, 64 << 10})
    for (const Index receivers : {1, 16, 17, 200})
      for (const Index nbytes : {1, 5000, 100000, 1 << 24}) {
        options.slot_bytes = slot_bytes;
        require(self_part_bytes(nbytes, {receivers}, options) <= slot_bytes, "a piece is longer than slot_bytes");
      }
}

}  // namespace

int main() {
  check_pieces();
  const Case cases[] = {{"eager", 4, 8, false, false},
                        {"staged", 256, 32, false, false},
                        {"push", 256, 32, false, true},
                        {"pull", 256, 64, true, false},
                        {"pull or push", 256, 64, true, true},
                        {"read", 2, 8192, false, false},
                        {"staged sum", 256, 32, false, false, true},
                        {"pulled sum", 256, 32, true, false, true},
                        {"refused", 2, 8192, false, false}};
  const std::shared_ptr<Context> contexts[] = {Context::of(MPI_COMM_NULL), Context::of(MPI_COMM_NULL)};
  const auto rank = [&](int number) {
    std::int64_t plan = 0;
    for (const Case& chosen : cases)
      for (int repeated = 0; repeated < 4; ++repeated) {
        if (chosen.name == cases[8].name) kernel_refuses = true;
        move(chosen, *contexts[number], ++plan);
      }
    ring_in_turns(number);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}
