// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Arrays that are allocated, resized and released in random order keep what is in them, before and after a fork.
///
/// Usage: test_array_allocator [steps]

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "node/array_allocator.hpp"

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
    allocator_.release(array.bytes);
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  bool all_right() const {
    for (const Array& array : arrays_)
      if (!array.right()) return false;
    return true;
  }
  void fill(unsigned char value) {
    for (Array& array : arrays_) array.fill(value);
  }
  void clear() {
    for (const Array& array : arrays_) allocator_.release(array.bytes);
    arrays_.clear();
  }

 private:
  std::size_t any(std::size_t count) { return random_() % count; }
  std::size_t some_bytes() {
    const std::size_t least = ArrayAllocator::least_shared_bytes;
    const std::size_t sizes[] = {0, 1, 1000, least - 1, least, least + 1, 3 * least, 40 * least};
    return sizes[any(8)] + any(2) * any(5000);
  }

  void make() {
    const std::size_t nbytes = some_bytes();
    const bool zero = any(2) == 0;
    Array array{static_cast<unsigned char*>(allocator_.allocate(nbytes, zero)), nbytes, 0};
    expect(!zero || array.right(), "memory that must be zeros is not");
    if (nbytes > 0)
      expect(is_in_shared_array(array.bytes + nbytes - 1) == (nbytes >= ArrayAllocator::least_shared_bytes),
             "an array lies in the wrong memory");
    array.fill(static_cast<unsigned char>(any(256)));
    arrays_.push_back(array);
  }

  void resize(Array& array) {
    const std::size_t nbytes = some_bytes(), kept = std::min(nbytes, array.nbytes);
    array.bytes = static_cast<unsigned char*>(allocator_.resize(array.bytes, nbytes));
    array.nbytes = kept;
    expect(array.right(), "a resized array lost its contents");
    array.nbytes = nbytes;
    array.fill(array.value);
  }

  ArrayAllocator& allocator_ = ArrayAllocator::instance();
  std::mt19937 random_{7};
  std::vector<Array> arrays_;
};

/// Parent and child write to the same arrays, and see nothing of each other.
void check_fork(Arrays& arrays, int steps) {
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;
    usleep(20000);  // the parent has written by now
    expect(arrays.all_right(), "a child sees what its parent wrote after the fork");
    arrays.fill(1);
    for (int i = 0; i < steps; ++i) arrays.step();
    expect(arrays.all_right(), "an array of a child lost its contents");
    arrays.clear();
    _exit(failures != 0);
  }
  Arrays& mine = arrays;
  mine.fill(2);
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child failed");
  expect(mine.all_right(), "a child wrote to its parent's arrays");
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 2000;
  Arrays arrays;
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < steps; ++i) arrays.step();
    check_fork(arrays, steps);
  }
  arrays.clear();
  setenv(shared_memory_variable, "1000", 1);
  void* const ordinary = ArrayAllocator::instance().allocate(std::size_t{7} << 20, true);
  expect(ordinary && !is_in_shared_array(ordinary), "without shared memory there is no memory");
  ArrayAllocator::instance().release(ordinary);
  return failures != 0;
}
