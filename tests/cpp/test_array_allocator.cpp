// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Arrays that are allocated, resized and freed in random order keep their contents. A forked child, and its child,
/// share them with the parent, and free none of its memory. All this holds for a program that closes files of the
/// library and limits the size of files, and where pages have 64 KiB, as with kernels for 64-bit ARM.
///
/// Usage: test_array_allocator [steps]

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shm/arena.hpp"
#include "shm/array_allocator.hpp"
#include "shm/available_memory.hpp"

namespace {

bool large_pages = false;
constexpr std::size_t large_page_bytes = 64 << 10;

}  // namespace

extern "C" {
long __real_sysconf(int name);
int __real_madvise(void* start, std::size_t nbytes, int advice);

long __wrap_sysconf(int name) {
  return large_pages && name == _SC_PAGESIZE ? long{large_page_bytes} : __real_sysconf(name);
}

/// As the kernel, it takes whole pages only from their start, and the whole last one.
int __wrap_madvise(void* start, std::size_t nbytes, int advice) {
  if (!large_pages || advice != MADV_REMOVE) return __real_madvise(start, nbytes, advice);
  if (reinterpret_cast<std::uintptr_t>(start) % large_page_bytes == 0)
    return __real_madvise(start, (nbytes + large_page_bytes - 1) / large_page_bytes * large_page_bytes, advice);
  errno = EINVAL;
  return -1;
}
}

namespace {

using namespace dace_redist;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("%s\n", what);
}

struct Array {
  unsigned char* bytes;
  std::size_t nbytes;
  unsigned char value;

  bool right() const {
    for (std::size_t i = 0; i < nbytes; i += 61)
      if (bytes[i] != value) return false;
    return nbytes == 0 || bytes[nbytes - 1] == value;
  }
  void fill(unsigned char with) {
    value = with;
    std::memset(bytes, value, nbytes);
  }
};

class Arrays {
 public:
  void step() {
    if (arrays_.size() < 20 && any(2) == 0) return make();
    if (arrays_.empty()) return;
    const std::size_t which = any(arrays_.size());
    Array& array = arrays_[which];
    expect(array.right(), "an array lost its contents");
    if (any(2) == 0) return resize(array);
    free_array(array.bytes);
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  bool all_right() const {
    for (const Array& array : arrays_)
      if (!array.right()) return false;
    return true;
  }
  void clear() {
    for (const Array& array : arrays_) free_array(array.bytes);
    arrays_.clear();
  }

 private:
  std::size_t any(std::size_t count) { return random_() % count; }
  std::size_t some_bytes() {
    const std::size_t shared = min_shared_bytes;
    const std::size_t sizes[] = {0, 1, 1000, shared - 1, shared, shared + 1, 3 * shared, 40 * shared};
    return sizes[any(8)] + any(2) * any(5000);
  }

  void make() {
    const std::size_t nbytes = some_bytes();
    const bool zero = any(2) == 0;
    Array array{static_cast<unsigned char*>(allocate_array(nbytes, zero)), nbytes, 0};
    expect(!zero || array.right(), "memory that must be zeros is not");
    if (nbytes > 0)
      expect(is_in_arena(array.bytes + nbytes - 1) == (nbytes >= min_shared_bytes),
             "an array lies in the wrong memory");
    array.fill(static_cast<unsigned char>(any(256)));
    arrays_.push_back(array);
  }

  void resize(Array& array) {
    const std::size_t nbytes = some_bytes(), kept = std::min(nbytes, array.nbytes);
    array.bytes = static_cast<unsigned char*>(resize_array(array.bytes, nbytes));
    array.nbytes = kept;
    expect(array.right(), "a resized array lost its contents");
    array.nbytes = nbytes;
    array.fill(array.value);
  }

  std::mt19937 random_{7};
  std::vector<Array> arrays_;
};

/// A file that has the number of the arena's descriptor, which the program closed.
class OtherFile {
 public:
  OtherFile() {
    expect(std::fwrite(content_.data(), content_.size(), 1, file_) == 1 && std::fflush(file_) == 0, "no file");
    dup2(fileno(file_), static_cast<int>(Arena::own().name().descriptor));
  }
  bool unchanged() const {
    std::string found(content_.size(), ' ');
    return pread(fileno(file_), found.data(), found.size(), 0) > 0 && found == content_;
  }

 private:
  std::FILE* file_ = std::tmpfile();
  std::string content_ = std::string(std::size_t{4} << 20, 'x');
};

/// A child sees what its parent writes to shared arrays, and the other way round. The child frees and resizes them
/// without effect on the parent; what it allocates is its own.
void check_fork(Arrays& arrays, int steps) {
  int to_child[2], to_parent[2];
  if (pipe(to_child) != 0 || pipe(to_parent) != 0) std::abort();
  char token = 0;
  auto* const shared = static_cast<unsigned char*>(allocate_array(4 * min_shared_bytes, true));
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;
    expect(read(to_child[0], &token, 1) == 1 && shared[0] == 1, "a child does not see its parent's array");
    expect(Arena::is_inherited(shared) && !is_in_arena(shared), "an array of the parent is taken for the child's");
    shared[1] = 2;
    expect(write(to_parent[1], &token, 1) == 1, "the parent is gone");
    const rlimit small_files{std::size_t{64} << 20, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &small_files);
    auto* const mine = static_cast<unsigned char*>(allocate_array(4 * min_shared_bytes, true));
    expect(is_in_arena(mine), "an array of a child is not shared");
    mine[0] = 3;
    int status = 0;
    if (fork() == 0) {  // a child of the child
      shared[3] = mine[1] = 4;
      free_array(mine);
      free_array(shared);
      _exit(0);
    }
    expect(wait(&status) > 0 && status == 0 && mine[0] == 3 && mine[1] == 4, "arrays of a child are not its child's");
    auto* const resized = static_cast<unsigned char*>(resize_array(shared, 2 * min_shared_bytes));
    expect(resized[0] == 1 && resized[1] == 2, "an array of the parent is not resized");
    free_array(resized);
    free_array(mine);
    arrays.clear();
    for (int i = 0; i < steps; ++i) arrays.step();
    expect(arrays.all_right(), "an array of a child lost its contents");
    arrays.clear();
    std::fflush(stdout);
    _exit(failures != 0);
  }
  shared[0] = 1;
  expect(write(to_child[1], &token, 1) == 1 && read(to_parent[0], &token, 1) == 1, "the child is gone");
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child failed");
  expect(shared[0] == 1 && shared[1] == 2 && shared[2] == 0 && shared[3] == 4,
         "a parent does not see what its child wrote");
  expect(is_in_arena(shared) && arrays.all_right(), "a child freed its parent's arrays");
  auto* const next = static_cast<unsigned char*>(allocate_array(4 * min_shared_bytes, true));
  expect(next != shared, "memory that a child freed is allocated again");
  free_array(next);
  free_array(shared);
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(end);
}

/// A child is forked while another thread looks for arrays.
void check_fork_beside_thread() {
  std::atomic<bool> stops{false};
  std::thread looks([&] {
    while (!stops) is_in_arena(&stops);
  });
  for (int turn = 0; turn < 50; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(is_in_arena(&stops));
    }
    int status = 0;
    waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child waits for a thread of its parent");
    if (failures) break;
  }
  stops = true;
  looks.join();
}

/// Limits of control groups of both versions, of this process's group and of those around it.
void check_control_groups() {
  namespace fs = std::filesystem;
  struct Limits {
    const char *groups, *outer, *limit, *used, *inner;
    std::int64_t left;
  };
  const Limits cases[] = {
      {"0::/job/step\n", "/job", "max", "current", "/job/step", 400},  // 1000 - 900, and 300 of files
      {"5:cpu:/x\n3:rdma,memory:/job/step\n", "/memory", "limit_in_bytes", "usage_in_bytes", "/memory/job", 400},
      {"0::/outside/of/the/container\n", "", "max", "current", "/job", 400},  // the root is the container's
      {"5:cpu:/job\n", "/memory", "limit_in_bytes", "usage_in_bytes", "/memory/job", INT64_MAX},
  };
  const fs::path root = fs::temp_directory_path() / ("dace-redist-groups-" + std::to_string(getpid()));
  for (const Limits& one : cases) {
    const auto write = [&](const std::string& path, const std::string& text) {
      fs::create_directories((root / path).parent_path());
      std::ofstream(root / path) << text;
    };
    write("proc/self/cgroup", one.groups);
    for (const auto& [group, limit] : {std::pair{one.outer, "1000"}, std::pair{one.inner, "9000"}}) {
      const std::string folder = std::string("sys/fs/cgroup") + group + "/memory.";
      write(folder + one.limit, limit);
      write(folder + one.used, "900");
      write(folder + "stat", "total_active_file 100\ntotal_inactive_file 200\nactive_file 100\ninactive_file 200\n");
    }
    expect(left_in_control_groups(root) == one.left, one.groups);
    fs::remove_all(root);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 2000;
  int status = 0;
  large_pages = fork() == 0;
  if (!large_pages) expect(wait(&status) > 0 && status == 0, "with pages of 64 KiB it fails");
  Arrays arrays;
  const OtherFile file;
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < steps; ++i) arrays.step();
    check_fork(arrays, steps);
  }
  arrays.clear();
  check_fork_beside_thread();
  check_control_groups();
  expect(file.unchanged(), "freeing arrays changed a file");
  setenv(shared_memory_variable, "1000", 1);
  void* const ordinary = allocate_array(std::size_t{7} << 20, true);
  expect(ordinary && !is_in_arena(ordinary), "without shared memory there is no memory");
  free_array(ordinary);
  return failures != 0;
}
