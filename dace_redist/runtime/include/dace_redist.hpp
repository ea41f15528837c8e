// SPDX-License-Identifier: BSD-3-Clause
/// \file C++17 interface, over dace_redist.h: objects that free themselves, exceptions, typed arrays.
#ifndef DACE_REDIST_HPP
#define DACE_REDIST_HPP

#include <algorithm>
#include <complex>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dace_redist.h"

namespace dr {
/// Failure of the library, or of a check of this header, with its ::dr_status.
struct Error : std::runtime_error {
  Error(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};
inline void check(int status) {
  if (status != DR_SUCCESS) throw Error(status, dr_error());
}
inline void check_size(const char* name, std::size_t size, int64_t expected) {
  if (expected >= 0 && static_cast<int64_t>(size) != expected)
    throw Error(DR_ERROR_ARGUMENT, std::string(name) + " must have " + std::to_string(expected) +
                                       " elements on this rank, got " + std::to_string(size));
}
/// Returns what a C function stores at its last argument.
template <class T, class Function, class... Arguments>
T result_of(Function function, Arguments... arguments) {
  T result{};
  check(function(arguments..., &result));
  return result;
}
template <class Handle, int (*free)(Handle**)>
struct Free {
  void operator()(Handle* handle) const noexcept { free(&handle); }
};
/// A contiguous array of somebody else, as std::span of C++20; made from anything with data() and size().
template <class T>
class Span {
  T* data_;
  std::size_t size_;
  template <class Range>
  using Element = std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>;

 public:
  Span(T* data, std::size_t size) : data_(data), size_(size) {}
  template <class Range, class = std::enable_if_t<std::is_convertible_v<Element<Range> (*)[], T (*)[]>>>
  Span(Range&& range) : Span(std::data(range), std::size(range)) {}
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) const { return data_[i]; }
};
/// An array of zeros in node-shared memory, see dr_memory_create().
template <class T>
class Memory : public Span<T> {
  std::unique_ptr<void, Free<void, dr_memory_free>> memory_;

 public:
  static constexpr std::size_t limit = INT64_MAX / sizeof(T);  ///< for which there is no memory, as for more
  explicit Memory(std::size_t size)
      : Span<T>(static_cast<T*>(result_of<void*>(dr_memory_create, std::min(size, limit) * sizeof(T))), size),
        memory_(this->data()) {}
};
using Extents = std::vector<int64_t>;
/// A tensor's elements over ranks. Empty lists take the defaults of dr_distribution_create_blocks().
class Distribution {
  std::unique_ptr<dr_distribution, Free<dr_distribution, dr_distribution_free>> handle_;
  template <class T>
  static const T* optional(const char* name, const std::vector<T>& list, int64_t count) {
    if (!list.empty()) check_size(name, list.size(), count);
    return list.empty() ? nullptr : list.data();
  }

 public:
  explicit Distribution(dr_distribution* handle) : handle_(handle) {}  ///< Takes over what a C function made.
  Distribution(const Extents& shape, const Extents& grid, const std::vector<int>& axes = {}, const Extents& block = {},
               const Extents& ranks = {}) {
    const int ndim = static_cast<int>(shape.size()), grid_ndim = static_cast<int>(grid.size());
    const int* const split = optional("axes", axes, ndim);
    int64_t positions = 1, entries = ndim;  // of block: lengths of parts follow the entries of the axes
    for (const int64_t extent : grid) __builtin_mul_overflow(positions, extent, &positions);  // of which C complains
    for (std::size_t i = 0; i < std::min(block.size(), shape.size()); ++i) {
      const std::size_t axis = split ? static_cast<std::size_t>(split[i]) : i;
      if (block[i] == DR_BLOCK_LENGTHS) entries += axis < grid.size() ? grid[axis] : 1;
    }
    handle_.reset(result_of<dr_distribution*>(dr_distribution_create_blocks, ndim, shape.data(), grid_ndim, grid.data(),
                                              split, optional("block", block, entries),
                                              optional("ranks", ranks, positions)));
  }
  const dr_distribution* get() const { return handle_.get(); }
  int64_t local_count(int rank) const { return result_of<int64_t>(dr_distribution_local_count, get(), rank); }
  Extents local_shape(int rank) const {
    Extents shape(static_cast<std::size_t>(result_of<int>(dr_distribution_local_ndim, get(), rank)));
    check(dr_distribution_local_shape(get(), rank, shape.data()));
    return shape;
  }
};
/// The ::dr_type of elements that are computed with; DR_OPAQUE of those that are only moved.
template <class T>
constexpr int type_of() {
  constexpr int size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  if (std::is_same_v<T, bool>) return DR_BOOL;
  if (std::is_integral_v<T> && sizeof(T) <= 8) return (std::is_signed_v<T> ? DR_INT8 : DR_UINT8) + size;
  if (std::is_same_v<T, float> || std::is_same_v<T, double>) return DR_FLOAT32 + size - 2;
  if (std::is_same_v<T, std::complex<float>>) return DR_COMPLEX64;
  return std::is_same_v<T, std::complex<double>> ? DR_COMPLEX128 : DR_OPAQUE;
}
/// A started transfer, which its destructor waits for: it must be destroyed before its plan and its arrays.
struct Request {
  std::unique_ptr<dr_request, Free<dr_request, dr_request_wait>> handle;
  bool test() { return result_of<int>(dr_request_test, handle.get()) != 0; }
  void wait() {
    dr_request* started = handle.release();
    const int code = dr_request_wait(&started);
    handle.reset(started);  // not null if another thread is in a call with the plan
    check(code);
  }
};
/// A plan for arrays of some element types; its functions are collective as those of the C interface.
template <class Source, class Target = Source>
class Plan {
  static_assert(std::is_trivially_copyable_v<Source> && std::is_trivially_copyable_v<Target>);
  static_assert(std::is_same_v<Source, Target> || (type_of<Source>() && type_of<Target>()), "cannot convert elements");
  std::unique_ptr<dr_plan, Free<dr_plan, dr_plan_free>> plan_;
  int64_t source_count_ = -1, target_count_ = -1;  ///< of arrays whose layout is not the problem's: unknown
  void check_sizes(std::size_t source, std::size_t target) const {
    check_size("source", source, source_count_), check_size("target", target, target_count_);
  }

 public:
  /// Returns a problem, whose other members may be set before a plan is made for it.
  static dr_problem problem(const Distribution& source, const Distribution& target) {
    dr_problem problem = result_of<dr_problem>(dr_problem_init);
    problem.source = source.get(), problem.target = target.get(), problem.element_bytes = sizeof(Source);
    problem.operation.source_type = type_of<Source>(), problem.operation.target_type = type_of<Target>();
    return problem;
  }
  Plan(const Distribution& source, const Distribution& target, MPI_Comm comm) : Plan(problem(source, target), comm) {}
  /// Elements of a problem with other types or another size than those of the arrays are an error on every rank.
  Plan(const dr_problem& problem, MPI_Comm comm) {
    const int source = problem.operation.source_type, target = problem.operation.target_type;
    const bool typed = source == type_of<Source>() && target == type_of<Target>();
    const bool moved = std::is_same_v<Source, Target> && source == DR_OPAQUE && target == DR_OPAQUE;
    const bool fits = (typed || moved) && problem.element_bytes == int64_t{sizeof(Source)};
    dr_plan* made = nullptr;
    const int code = dr_plan_create(fits ? &problem : nullptr, comm, &made);  // null: an error on all ranks
    plan_.reset(made);
    if (!fits)
      throw Error(DR_ERROR_ARGUMENT, "problem must have the arrays' types and elements of " +
                                         std::to_string(sizeof(Source)) + " bytes, got " +
                                         std::to_string(problem.element_bytes) + " bytes");
    check(code);
    int rank = 0, has_groups = 0;
    MPI_Comm_rank(comm, &rank), MPI_Comm_test_inter(comm, &has_groups);
    const auto count = [&](const dr_distribution* side, bool is_here) {
      return has_groups && !is_here ? int64_t{0} : result_of<int64_t>(dr_distribution_local_count, side, rank);
    };
    if (!problem.source_shape && !problem.source_strides) source_count_ = count(problem.source, problem.sends != 0);
    if (!problem.target_shape && !problem.target_strides) target_count_ = count(problem.target, problem.sends == 0);
  }
  dr_plan* get() const { return plan_.get(); }
  /// Moves the tensor. An array of a wrong size is an error on this rank only.
  void execute(Span<const Source> source, Span<Target> target) {
    check_sizes(source.size(), target.size());
    check(dr_plan_execute(get(), source.data(), target.data()));
  }
  [[nodiscard]] Request start(Span<const Source> source, Span<Target> target, int progress = DR_PROGRESS_CALLS) {
    check_sizes(source.size(), target.size());
    return {decltype(Request::handle)(
        result_of<dr_request*>(dr_plan_start, get(), source.data(), target.data(), progress))};
  }
};
}  // namespace dr
#endif
