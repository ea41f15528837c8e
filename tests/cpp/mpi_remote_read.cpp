// Long messages that a receiver reads out of the sender's private memory: whether the kernel lets it, refuses at once,
// or refuses after some were read, everything arrives; and a receiver reads if it has less to copy than the sender.
//
// Usage: mpiexec -n RANKS mpi_remote_read (2 ranks or more, on one node)

#include <dlfcn.h>
#include <sys/uio.h>

#include <cstdio>

#include "mpi_leaks.hpp"
#include "node/shared_array.hpp"
#include "plan/registry.hpp"

namespace {

constexpr int never = 1 << 30;
int allowed_calls = never;  // those after it are refused
int calls = 0;

}  // namespace

extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  static const auto kernel = reinterpret_cast<decltype(&process_vm_readv)>(dlsym(RTLD_NEXT, "process_vm_readv"));
  if (calls++ < allowed_calls) return kernel(process, here, here_count, there, there_count, flags);
  errno = EPERM;
  return -1;
}

namespace {

using namespace dace_redist;

constexpr Index columns = 8192, rows_of_rank = 40;  // doubles: 2.5 MiB for each rank, in several pieces

/// The rows on the first `sources` ranks, then on all, block 0 on rank `first`.
Description rows_to_all(Index sources, Index ranks, Index first) {
  const Index rows = rows_of_rank * ranks, rank = comm_rank(MPI_COMM_WORLD), held = rank < sources ? rows / sources : 0;
  Description description{"remote read", "Shared", sizeof(double), {}, {}, {}, {}, {}};
  description.source = {0, 2, 1, rows, columns, sources, 0, -1, 0, 0, -1, 0};
  description.target = {0, 2, 1, rows, columns, ranks, 0, -1, 0, 0, -1, ranks};
  for (Index block = 0; block < ranks; ++block) description.target.push_back((first + block) % ranks);
  description.source_local = {held, held > 0 ? columns : 0, columns, 1};
  description.target_local = {rows_of_rank, columns, columns, 1};
  return description;
}

/// The value of an element is its position. Says how often this rank asked the kernel, or -1 if
/// something is wrong.
int calls_for(Index sources, Index first, bool shared_target, int allowed) {
  const Index ranks = comm_size(MPI_COMM_WORLD), rank = comm_rank(MPI_COMM_WORLD),
              block = (rank + ranks - first) % ranks;
  const auto count = static_cast<std::size_t>(rows_of_rank * columns);
  const auto plan = find_strategy("Shared")(rows_to_all(sources, ranks, first), MPI_COMM_WORLD);
  std::vector<double> source(rank < sources ? count * static_cast<std::size_t>(ranks / sources) : 0), plain(count);
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<double>(source.size()) * static_cast<double>(rank) + static_cast<double>(i);
  double* const target =
      shared_target ? static_cast<double*>(allocate_shared(static_cast<Index>(count * sizeof(double)))) : plain.data();
  calls = 0;
  allowed_calls = allowed;
  for (int run = 0; run < 2; ++run) {
    std::fill(target, target + count, -1.0);
    plan->run(source.data(), target);
    for (std::size_t i = 0; i < count; ++i)
      if (target[i] != static_cast<double>(count) * static_cast<double>(block) + static_cast<double>(i)) calls = never;
  }
  MPI_Barrier(MPI_COMM_WORLD);  // others may still write to it
  if (shared_target) free_shared(target);
  return calls < never ? calls : -1;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int rank = comm_rank(MPI_COMM_WORLD), ranks = comm_size(MPI_COMM_WORLD);
  int passed = 0;
  const auto check = [&](bool right, const char* what, int got) {
    all_or_none(MPI_COMM_WORLD, [&] {
      if (!right) throw Error(text(what, ": got ", got));
    });
    ++passed;
  };
  try {
    for (const bool shared_target : {false, true}) {
      const int read = calls_for(1, 0, shared_target, never);
      check(rank == 0 ? read == 0 : read > 2, "one rank has it all, the others read", read);
      const int refused = calls_for(1, 0, shared_target, 0);
      check(rank == 0 ? refused == 0 : refused == 2, "refused at once", refused);
      const int later = calls_for(1, 0, shared_target, 3);
      check(rank == 0 ? later == 0 : later > 3, "refused in the midst", later);
    }
    const int pushed = calls_for(ranks, 1, true, never), read = calls_for(ranks, 1, false, never);
    check(pushed == 0, "all send as much as they receive: who sends copies", pushed);
    check(read > 2, "all send as much as they receive to ordinary memory", read);
    if (rank == 0) std::printf("%d checks passed\n", passed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
