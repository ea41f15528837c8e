// Long messages that a receiver reads out of the sender's private memory: whether the kernel lets it, refuses at once,
// or refuses after some were read, everything arrives; and a receiver reads if it has less to copy than the sender.
//
// Usage: mpiexec -n RANKS mpi_remote_read allowed|refused|refused_later|balanced|mapped (2 ranks or more, on one node)
//
// With `mapped`, private arrays can be attached by a stand-in of XPMEM: nobody reads by the kernel.
//
// A refusal is remembered by the process: each case takes a run of its own.

#include <dlfcn.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "attachable.hpp"
#include "core/agreement.hpp"
#include "mpi_leaks.hpp"
#include "plan/plan.hpp"
#include "shm/array_allocator.hpp"

namespace {

constexpr int never = 1 << 30;
int allowed_calls = never;  // those after it are refused
int calls = 0;
bool kernel_refuses = false;

}  // namespace

extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  static const auto kernel = reinterpret_cast<decltype(&process_vm_readv)>(dlsym(RTLD_NEXT, "process_vm_readv"));
  if (calls++ < allowed_calls) {
    const ssize_t nbytes = kernel(process, here, here_count, there, there_count, flags);
    kernel_refuses = kernel_refuses || (nbytes < 0 && errno != EFAULT);
    return nbytes;
  }
  errno = EPERM;
  return -1;
}

namespace {

using namespace dace_redist;

constexpr Index columns = 8192, rows_of_rank = 40;  // doubles: 2.5 MiB for each rank, in several pieces

/// The rows on the first `sources` ranks, then on all, block 0 on rank `first`; before it a tensor of one element,
/// which the last rank keeps.
Problem rows_to_all(Index sources, Index ranks, Index first) {
  const Index rows = rows_of_rank * ranks;
  Encoding target{0, 2, 1, rows, columns, ranks, 0, -1, 0, 0, -1, ranks};
  for (Index block = 0; block < ranks; ++block) target.push_back((first + block) % ranks);
  Problem problem{"remote read", "Shared", default_options(), {}};
  const Distribution last({0, 1, 1, 1, 1, 0, -1, -1, 1, ranks - 1});
  problem.tensors.push_back({last, last, sizeof(double)});
  problem.tensors.push_back({Distribution({0, 2, 1, rows, columns, sources, 0, -1, 0, 0, -1, 0}, "source"),
                             Distribution(target, "target"), sizeof(double)});
  return problem;
}

/// The value of an element is its position. \return calls of the kernel on this rank, or
/// -1 if an element is wrong.
int calls_for(Index sources, Index first, bool shared_target, int allowed) {
  const Index ranks = comm_size(MPI_COMM_WORLD), rank = comm_rank(MPI_COMM_WORLD),
              block = (rank + ranks - first) % ranks;
  const auto count = static_cast<std::size_t>(rows_of_rank * columns);
  const auto plan = Plan::make(MPI_COMM_WORLD, [&] { return rows_to_all(sources, ranks, first); });
  std::vector<double, Attachable<double>> source(rank < sources ? count * static_cast<std::size_t>(ranks / sources)
                                                                : 0),
      plain(count);
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<double>(source.size()) * static_cast<double>(rank) + static_cast<double>(i);
  double* const target =
      shared_target ? static_cast<double*>(allocate_array(count * sizeof(double), false, 0)) : plain.data();
  double one = 1, *const kept = rank == ranks - 1 ? &one : nullptr;
  const void* const source_arrays[] = {kept, source.data()};
  void* const target_arrays[] = {kept, target};
  calls = 0;
  allowed_calls = allowed;
  for (int run = 0; run < 2; ++run) {
    std::fill(target, target + count, -1.0);
    plan->run(source_arrays, target_arrays);
    for (std::size_t i = 0; i < count; ++i)
      if (target[i] != static_cast<double>(count) * static_cast<double>(block) + static_cast<double>(i)) calls = never;
  }
  MPI_Barrier(MPI_COMM_WORLD);  // others may still write to it
  if (shared_target) free_array(target);
  return calls < never ? calls : -1;
}

}  // namespace

namespace {

class Checker {
 public:
  void check_case(const std::string& name) {
    const Index ranks = comm_size(MPI_COMM_WORLD);
    if (name == "mapped") {
      for (const bool shared_target : {false, true}) {
        const int balanced = calls_for(ranks, 1, shared_target, never), one = calls_for(1, 0, shared_target, never);
        const bool refused = std::getenv("STAND_IN_XPMEM_REFUSES") != nullptr && !shared_target;
        check(refused || (balanced == 0 && one == 0), "all arrays can be addressed", std::max(balanced, one));
      }
      return;
    }
    if (name == "balanced") {
      const int pushed = calls_for(ranks, 1, true, never), read = calls_for(ranks, 1, false, never);
      check(pushed == 0, "all ranks send as much as they receive: the sender copies", pushed);
      check(read > 2, "all ranks send as much as they receive, to ordinary memory", read);
      return;
    }
    const bool receives = comm_rank(MPI_COMM_WORLD) > 0;
    const int allowed = name == "allowed" ? never : name == "refused" ? 0 : 3;
    for (const bool shared_target : {false, true}) {
      const int made = calls_for(1, 0, shared_target, allowed);
      const bool asks = receives && (allowed == never || !shared_target);  // not again after a refusal
      const bool right = allowed == never ? made > 2 : made == allowed + 1;
      check(asks ? right : made == 0, "one rank sends to all others", made);
    }
  }

  int passed = 0;

 private:
  void check(bool right, const char* what, int made) {
    const bool counts = lowest_rank(MPI_COMM_WORLD, kernel_refuses) < 0;
    all_or_none(MPI_COMM_WORLD, [&] {
      if (made < 0) throw Error(text(what, ": an element is wrong"));
      if (counts && !right) throw Error(text(what, ": ", made, " calls of the kernel"));
    });
    passed += counts;
  }
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int rank = comm_rank(MPI_COMM_WORLD);
  try {
    Checker checker;
    checker.check_case(argc > 1 ? argv[1] : "allowed");
    if (rank == 0 && checker.passed > 0) std::printf("%d checks passed\n", checker.passed);
    if (rank == 0 && checker.passed == 0) std::printf("not tested: the kernel refuses\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
