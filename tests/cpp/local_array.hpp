// Local arrays of random layout, in ordinary or node-shared memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "attachable.hpp"
#include "oracle.hpp"
#include "plan/problem.hpp"
#include "shm/array_allocator.hpp"
#include "shm/xpmem.hpp"

namespace {

/// Writes the value of a global index: no two neighbours, and no two words of one element, are alike.
void write_value(unsigned char* bytes, Index global, std::size_t element_bytes) {
  for (std::size_t at = 0; at < element_bytes; at += 8) {
    const std::uint64_t value = (static_cast<std::uint64_t>(global) + 1 + (at << 40)) * 0x9E3779B97F4A7C15u;
    const std::size_t count = std::min<std::size_t>(8, element_bytes - at);
    const std::uint64_t top = value >> (64 - 8 * count);
    std::memcpy(bytes + at, &top, count);
  }
}

/// Allocates from the heap, or memory that can be attached where XPMEM is tested; or node-shared memory.
template <class T>
struct MaybeShared {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;

  explicit MaybeShared(bool wanted = false) : shared(wanted) {}
  T* allocate(std::size_t count) const {
    if (shared) return static_cast<T*>(allocate_array(count, false, 0));
    return std::getenv(xpmem_variable) ? Attachable<T>().allocate(count) : static_cast<T*>(std::malloc(count));
  }
  void deallocate(T* bytes, std::size_t count) const {
    if (shared)
      free_array(bytes);
    else if (std::getenv(xpmem_variable))
      Attachable<T>().deallocate(bytes, count);
    else
      std::free(bytes);
  }
  bool operator==(const MaybeShared& other) const { return shared == other.shared; }
  bool operator!=(const MaybeShared& other) const { return shared != other.shared; }

  bool shared;
};

/// A local array of random layout: axes permuted, padded, guards around.
class LocalArrayMemory {
 public:
  LocalArrayMemory(Random random, const Part& part, Index element_bytes)
      : part_(part), element_bytes_(static_cast<std::size_t>(element_bytes)) {
    const std::size_t ndim = part.shape.size();
    extents_ = strides_ = part.shape;
    Index stride = random.one_in(5) ? 2 : 1;
    const Indices order = random.one_in(2) ? random.permutation(static_cast<Index>(ndim)) : Indices{};
    first_ = random.one_in(3) ? 0 : random.between(1, 9);
    for (std::size_t at = ndim; at-- > 0;) {
      const std::size_t axis = order.empty() ? at : static_cast<std::size_t>(order[at]);
      extents_[axis] += random.one_in(4) ? random.between(1, 3) : 0;
      strides_[axis] = stride;
      stride *= std::max<Index>(1, extents_[axis]);
    }
    if (random.one_in(2)) bytes_ = Bytes(MaybeShared<unsigned char>(true));
    if (!part.globals.empty() || random.one_in(2))
      bytes_.resize(static_cast<std::size_t>(first_ + stride + random.between(0, 3)) * element_bytes_);
  }

  void* data() { return bytes_.empty() ? nullptr : bytes_.data() + static_cast<std::size_t>(first_) * element_bytes_; }
  LocalArray local_array() const { return {extents_, strides_}; }

  /// What the whole memory looks like when `write` has put the part's elements there, everything else is `background`.
  template <class Write>
  std::vector<unsigned char> picture(unsigned char background, const Write& write) const {
    std::vector<unsigned char> bytes(bytes_.size(), background);
    std::size_t k = 0;
    if (!part_.globals.empty())
      for_each_index(part_.shape, [&](const Indices& index) {
        const Index global = part_.globals[k++];
        if (global < 0) return;  // left as it is
        Index offset = first_;
        for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides_[i];
        write(bytes.data() + static_cast<std::size_t>(offset) * element_bytes_, global);
      });
    return bytes;
  }
  void set(const std::vector<unsigned char>& bytes) { std::copy(bytes.begin(), bytes.end(), bytes_.begin()); }
  bool equals(const std::vector<unsigned char>& bytes) const {
    return std::equal(bytes_.begin(), bytes_.end(), bytes.begin(), bytes.end());
  }

 private:
  using Bytes = std::vector<unsigned char, MaybeShared<unsigned char>>;

  Part part_;
  std::size_t element_bytes_;
  Indices extents_, strides_;  // elements
  Index first_ = 0;            // element at index (0, 0, ...)
  Bytes bytes_;
};

}  // namespace
