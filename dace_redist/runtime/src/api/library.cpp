// SPDX-License-Identifier: BSD-3-Clause
#include <utility>
#include <vector>

#include "copy/copy.hpp"
#include "core/agreement.hpp"
#include "core/backoff.hpp"
#include "core/mpi.hpp"
#include "core/report.hpp"
#include "dace_redist_library.hpp"
#include "device/device_objects.hpp"
#include "trace/trace.hpp"

namespace dace_redist::library {
namespace {

static_assert(Box::max_dims == max_block_dims);

StridedBlock block_of(const Box& box) { return {box.ndim, 0, 0, box.counts, box.source_strides, box.target_strides}; }

}  // namespace

std::vector<int> ranks_in(MPI_Comm comm, MPI_Comm other) { return dace_redist::ranks_in(comm, other); }

void report(const std::string& message) { dace_redist::report(message); }

void throw_everywhere(MPI_Comm comm, const std::exception_ptr& thrown) { dace_redist::throw_everywhere(comm, thrown); }

void complete(MPI_Request& request, MPI_Comm comm, const char* kind, const char* advice) {
  dace_redist::complete(request, comm, kind, advice);
}

Span::Span(const char* kind, const char* label)
    : kind_(kind), label_(label), start_(trace::folder ? trace::Clock::now().time_since_epoch().count() : 0) {}
Span::~Span() {
  const trace::Clock::time_point start{trace::Clock::duration(start_)};
  if (trace::folder) trace::record({kind_, label_, nullptr, trace::no_peer, 0, start, trace::Clock::now()});
}

Handle allocate(std::int64_t nbytes) {
  auto buffer = std::make_shared<Buffer>(nbytes);
  char* const bytes = buffer->at(0);
  return {std::move(buffer), bytes};
}

void copy(const Box& box, std::int64_t element_bytes, const void* source, void* target) {
  dace_redist::copy(make_copy_block(block_of(box), element_bytes), source, target, false);
}

CurrentDevice::CurrentDevice() : device_(current_device()), before_(device_.make_current()) {}
CurrentDevice::~CurrentDevice() { device_.restore(before_); }

Handle CurrentDevice::allocate(std::int64_t nbytes) { return device_.allocate(nbytes); }

Handle CurrentDevice::upload(const void* bytes, std::int64_t nbytes) { return device_.upload(bytes, nbytes); }

Handle CurrentDevice::prepare(const Box& box, std::int64_t element_bytes) {
  return std::make_shared<CopyKernel>(device_, std::vector<DeviceCopy>{{block_of(box)}},
                                      ElementStep{element_bytes, element_bytes, nullptr});
}

void enqueue(const Handle& copy, const void* source, void* target, void* stream) {
  static_cast<CopyKernel*>(copy.get())
      ->launch({static_cast<const char*>(source)}, {static_cast<char*>(target)}, stream);
}

}  // namespace dace_redist::library
