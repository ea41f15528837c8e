// Random redistributions that tests/case_files.py has drawn, with the memory of this rank's arrays before and after.
#pragma once

#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/options.hpp"
#include "plan/problem.hpp"
#include "shm/array_allocator.hpp"
#include "shm/xpmem.hpp"

namespace {

using namespace dace_redist;

/// Numbers and bytes of a file.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, std::ios::binary) {}

  Index number() {
    Index value = 0;
    read(&value, sizeof value);
    return value;
  }
  std::vector<Index> numbers() {
    std::vector<Index> list(static_cast<std::size_t>(number()));
    read(list.data(), list.size() * sizeof(Index));
    return list;
  }
  std::vector<unsigned char> bytes() {
    std::vector<unsigned char> list(static_cast<std::size_t>(number()));
    read(list.data(), list.size());
    return list;
  }

 private:
  void read(void* bytes, std::size_t count) {
    if (!file_.read(static_cast<char*>(bytes), static_cast<std::streamsize>(count)))
      throw Error("a file of cases ends");
  }

  std::ifstream file_;
};

/// Allocates from the heap, or memory that the stand-in of XPMEM can attach where that is tested; or node-shared
/// memory.
template <class T>
struct MaybeShared {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;

  explicit MaybeShared(bool wanted = false) : shared(wanted) {}
  T* allocate(std::size_t count) const {
    if (shared) return static_cast<T*>(allocate_array(count, false, 0));
    if (!std::getenv(xpmem_variable)) return static_cast<T*>(std::malloc(count));
    return static_cast<T*>(mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void deallocate(T* bytes, std::size_t count) const {
    if (shared)
      free_array(bytes);
    else if (std::getenv(xpmem_variable))  // the address stays taken: the stand-in, unlike XPMEM, would not follow it
      mmap(bytes, count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    else
      std::free(bytes);
  }
  bool operator==(const MaybeShared& other) const { return shared == other.shared; }
  bool operator!=(const MaybeShared& other) const { return shared != other.shared; }

  bool shared;
};

/// A local array, and what all of its memory holds before and after a transfer.
class ArrayMemory {
 public:
  explicit ArrayMemory(Reader& reader)
      : bytes_(MaybeShared<unsigned char>(reader.number() != 0)),
        first_(static_cast<std::size_t>(reader.number())),
        array_{reader.numbers(), reader.numbers()},
        before_(reader.bytes()),
        after_(reader.bytes()) {
    bytes_.resize(before_.size());
  }

  void* data() { return bytes_.empty() ? nullptr : bytes_.data() + first_; }
  const LocalArray& local_array() const { return array_; }
  void reset() { std::copy(before_.begin(), before_.end(), bytes_.begin()); }
  bool is_right() const { return std::equal(bytes_.begin(), bytes_.end(), after_.begin(), after_.end()); }

  /// Uses the memory for something else, which nobody but this rank may read or write; or frees it, for another one.
  void take_back(bool frees) {
    if (frees) {
      auto others = decltype(bytes_)(bytes_.size(), others_byte, bytes_.get_allocator());
      bytes_ = std::move(others);
    } else {
      std::fill(bytes_.begin(), bytes_.end(), others_byte);
    }
  }
  bool is_taken_back() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](unsigned char byte) { return byte == others_byte; });
  }

 private:
  static constexpr unsigned char others_byte = 0xc3;

  std::vector<unsigned char, MaybeShared<unsigned char>> bytes_;
  std::size_t first_;  // byte of the element at index (0, 0, ...)
  LocalArray array_;
  std::vector<unsigned char> before_, after_;
};

/// The arrays of a tensor.
struct MovedArrays {
  explicit MovedArrays(Reader& reader) : source(reader), target(reader) {}

  ArrayMemory source, target;
};

/// A tensor that moves.
struct Move {
  Encoding source, target, index_map;
  Index element_bytes = 0;  // of the source
  ElementOperation operation;
  std::vector<MovedArrays> layouts;
};

struct Case {
  Index number = 0;
  MPI_Comm comm = MPI_COMM_NULL;  // null on ranks that take no part
  Options options = default_options();
  std::vector<Move> moves;
};

Move read_move(Reader& reader, int layouts) {
  Move move{reader.numbers(), reader.numbers(), reader.numbers(), reader.number(), {}, {}};
  move.operation.source = static_cast<ElementType>(reader.number());
  move.operation.target = static_cast<ElementType>(reader.number());
  move.operation.alpha = static_cast<double>(reader.number());
  move.operation.beta = static_cast<double>(reader.number());
  move.operation.conjugate = reader.number() != 0;
  move.operation.reduction = static_cast<Reduction>(reader.number());
  move.operation.wire = static_cast<ElementType>(reader.number());
  move.operation.wire_within_nodes = reader.number() != 0;
  move.operation.accumulate = static_cast<ElementType>(reader.number());
  move.operation.reproducible = reader.number() != 0;
  for (int layout = 0; layout < layouts; ++layout) move.layouts.emplace_back(reader);
  return move;
}

/// \param comms  the world; its ranks in reverse; those but every third.
Case read_case(Reader& reader, Index number, const std::vector<MPI_Comm>& comms, int layouts) {
  Case the;
  the.number = number;
  the.comm = comms[static_cast<std::size_t>(reader.number())];
  the.options.chunk_bytes = reader.number();
  the.options.depth = reader.number();
  the.options.growth = static_cast<double>(reader.number()) / 10;
  the.options.threads = reader.number();
  the.options.slot_bytes = reader.number();
  the.options.max_message_bytes = reader.number();
  the.options.join_bytes = reader.number();
  the.options.max_in_flight_bytes = reader.number();
  for (Index left = reader.number(); left > 0; --left) the.moves.push_back(read_move(reader, layouts));
  return the;
}

}  // namespace
