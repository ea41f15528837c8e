// Calls that can fail where a program arms a fault: allocations, functions of MPI, cross-memory reads. One source of a
// program includes it.
//
// Linked with -Wl,--wrap=malloc,--wrap=aligned_alloc. Allocations of MPI do not fail, and a collective call fails on
// all ranks: no library survives one that fails on some of them.
#pragma once

#include <mpi.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

enum Kind { allocation, mpi_call, collective_call, making, connecting, beginning, copy_step, null_array, kinds };
constexpr const char* kind_names[kinds] = {"allocation",
                                           "MPI call",
                                           "collective MPI call",
                                           "a transport's making",
                                           "a transport's connecting",
                                           "a transport's beginning",
                                           "copy",
                                           "source array"};

std::array<std::atomic<long>, kinds> calls{};  // of the library, since counting began
std::atomic<int> armed{kinds};                 // kind of the fault
std::atomic<long> left{0};                     // calls of that kind until it strikes
std::atomic<bool> struck{false};
std::atomic<const char*> where{""};

/// Whether this thread runs the library's code: threads other than the program's are the library's.
thread_local bool inside = syscall(SYS_gettid) != getpid();

/// Runs the library's code, or code outside it, until it ends.
class Scope {
 public:
  explicit Scope(bool in_library) : before_(std::exchange(inside, in_library)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { inside = before_; }

 private:
  bool before_;
};

std::atomic<int> callers{0};
std::atomic<long> overlaps{0};  // calls of MPI while another thread is in one

/// A call of MPI.
class Call {
 public:
  Call() : outside_(false) {
    if (callers++ > 0) ++overlaps;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { --callers; }

 private:
  Scope outside_;
};

/// Counts a call of the library. \return whether it must fail.
bool strikes(Kind kind, const char* call) {
  if (!inside) return false;
  ++calls[kind];
  if (armed.load() != kind || --left != 0) return false;
  where = call;
  struck = true;
  return true;
}

}  // namespace

// Allocations.

extern "C" {
void* __real_malloc(std::size_t nbytes);
void* __real_aligned_alloc(std::size_t alignment, std::size_t nbytes);
void* __wrap_malloc(std::size_t nbytes) { return strikes(allocation, "malloc") ? nullptr : __real_malloc(nbytes); }
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t nbytes) {
  return strikes(allocation, "aligned_alloc") ? nullptr : __real_aligned_alloc(alignment, nbytes);
}
}

[[gnu::noinline]] void* operator new(std::size_t nbytes) {
  void* const bytes = strikes(allocation, "new") ? nullptr : __real_malloc(nbytes);
  if (!bytes) throw std::bad_alloc();
  return bytes;
}
[[gnu::noinline]] void* operator new(std::size_t nbytes, const std::nothrow_t&) noexcept {
  return strikes(allocation, "new") ? nullptr : __real_malloc(nbytes);
}
[[gnu::noinline]] void operator delete(void* bytes) noexcept { std::free(bytes); }
[[gnu::noinline]] void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

// MPI's profiling interface. A call that fails does nothing; a collective one does its work on all ranks first.

#define FAILS(NAME, PARAMETERS, ARGUMENTS)              \
  extern "C" int NAME PARAMETERS {                      \
    if (strikes(mpi_call, #NAME)) return MPI_ERR_OTHER; \
    const Call call;                                    \
    return P##NAME ARGUMENTS;                           \
  }
#define FAILS_EVERYWHERE(NAME, PARAMETERS, ARGUMENTS)   \
  extern "C" int NAME PARAMETERS {                      \
    const bool fails = strikes(collective_call, #NAME); \
    const Call call;                                    \
    const int code = P##NAME ARGUMENTS;                 \
    return fails ? MPI_ERR_OTHER : code;                \
  }

FAILS(MPI_Isend, (const void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
      (a, b, c, d, e, f, g))
FAILS(MPI_Irecv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g), (a, b, c, d, e, f, g))
FAILS(MPI_Recv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Status* g), (a, b, c, d, e, f, g))
FAILS(MPI_Iprobe, (int a, int b, MPI_Comm c, int* d, MPI_Status* e), (a, b, c, d, e))
FAILS(MPI_Test, (MPI_Request * a, int* b, MPI_Status* c), (a, b, c))
FAILS(MPI_Testall, (int a, MPI_Request b[], int* c, MPI_Status d[]), (a, b, c, d))
FAILS(MPI_Testsome, (int a, MPI_Request b[], int* c, int d[], MPI_Status e[]), (a, b, c, d, e))
FAILS(MPI_Put, (const void* a, int b, MPI_Datatype c, int d, MPI_Aint e, int f, MPI_Datatype g, MPI_Win h),
      (a, b, c, d, e, f, g, h))
FAILS(MPI_Win_post, (MPI_Group a, int b, MPI_Win c), (a, b, c))
FAILS(MPI_Win_start, (MPI_Group a, int b, MPI_Win c), (a, b, c))
FAILS(MPI_Win_complete, (MPI_Win a), (a))
FAILS(MPI_Win_test, (MPI_Win a, int* b), (a, b))
FAILS(MPI_Win_set_errhandler, (MPI_Win a, MPI_Errhandler b), (a, b))
FAILS(MPI_Type_contiguous, (int a, MPI_Datatype b, MPI_Datatype* c), (a, b, c))
FAILS(MPI_Type_create_hvector, (int a, int b, MPI_Aint c, MPI_Datatype d, MPI_Datatype* e), (a, b, c, d, e))
FAILS(MPI_Type_create_struct, (int a, const int* b, const MPI_Aint* c, const MPI_Datatype* d, MPI_Datatype* e),
      (a, b, c, d, e))
FAILS(MPI_Type_commit, (MPI_Datatype * a), (a))
FAILS(MPI_Comm_set_attr, (MPI_Comm a, int b, void* c), (a, b, c))
FAILS(MPI_Comm_set_errhandler, (MPI_Comm a, MPI_Errhandler b), (a, b))
FAILS(MPI_Comm_group, (MPI_Comm a, MPI_Group* b), (a, b))
FAILS(MPI_Group_incl, (MPI_Group a, int b, const int* c, MPI_Group* d), (a, b, c, d))
FAILS(MPI_Group_translate_ranks, (MPI_Group a, int b, const int* c, MPI_Group d, int* e), (a, b, c, d, e))

// One that fails has begun nothing: nobody waits for it, and its arrays are on the stack.
extern "C" int MPI_Iallreduce(const void* a, void* b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f, MPI_Request* g) {
  const bool fails = strikes(collective_call, "MPI_Iallreduce");
  const Call call;
  const int code = PMPI_Iallreduce(a, b, c, d, e, f, g);
  if (!fails) return code;
  PMPI_Wait(g, MPI_STATUS_IGNORE);
  return MPI_ERR_OTHER;
}
FAILS_EVERYWHERE(MPI_Allgather, (const void* a, int b, MPI_Datatype c, void* d, int e, MPI_Datatype f, MPI_Comm g),
                 (a, b, c, d, e, f, g))
FAILS_EVERYWHERE(MPI_Allgatherv,
                 (const void* a, int b, MPI_Datatype c, void* d, const int* e, const int* f, MPI_Datatype g,
                  MPI_Comm h),
                 (a, b, c, d, e, f, g, h))
FAILS_EVERYWHERE(MPI_Allreduce, (const void* a, void* b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f),
                 (a, b, c, d, e, f))
FAILS_EVERYWHERE(MPI_Bcast, (void* a, int b, MPI_Datatype c, int d, MPI_Comm e), (a, b, c, d, e))
FAILS_EVERYWHERE(MPI_Comm_dup, (MPI_Comm a, MPI_Comm* b), (a, b))
FAILS_EVERYWHERE(MPI_Comm_split, (MPI_Comm a, int b, int c, MPI_Comm* d), (a, b, c, d))
FAILS_EVERYWHERE(MPI_Comm_split_type, (MPI_Comm a, int b, int c, MPI_Info d, MPI_Comm* e), (a, b, c, d, e))
FAILS_EVERYWHERE(MPI_Win_allocate, (MPI_Aint a, int b, MPI_Info c, MPI_Comm d, void* e, MPI_Win* f), (a, b, c, d, e, f))

/// So few tags that communicators run out of them.
extern "C" int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  static int max_tag = 511;
  const Call call;
  const int code = PMPI_Comm_get_attr(comm, key, value, found);
  if (key == MPI_TAG_UB) *static_cast<int**>(value) = &max_tag;
  return code;
}

// Cross-memory reads, of the library and of MPI.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  if (!strikes(copy_step, "process_vm_readv"))
    return syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
  errno = EPERM;
  return -1;
}
