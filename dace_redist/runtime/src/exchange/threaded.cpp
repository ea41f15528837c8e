// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy Threaded: Pack with the threads of a rank sharing each copy.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3.

#include <algorithm>
#include <cstring>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "exchange/pack.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// Calls `work(part)` for every part in [0, parts), one thread each. \throws Error if compiled without OpenMP.
template <class Work>
void parallel_for(int parts, const Work& work) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) work(part);
#else
  (void)parts, (void)work;
  throw Error("the Threaded strategy needs OpenMP: compile with -fopenmp");
#endif
}

/// Packs and unpacks with several OpenMP threads; only the calling thread calls MPI (MPI_THREAD_FUNNELED). Buffers
/// are first touched by the threads that use them, so that they lie in those threads' memory (NUMA).
class ThreadedPlan final : public PackPlan {
 private:
  /// Below this many bytes starting threads costs more than they save.
  static constexpr Index parallel_bytes = Index{64} << 10;

  void prepare() override {
    threads_ = thread_count();
    PackPlan::prepare();
    touch(sends(), send_buffer());
    touch(receives(), receive_buffer());
  }

  int thread_count() const {
    if (options().threads > 0) return static_cast<int>(options().threads);
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
  }

  void touch(const std::vector<PackedMessage>& messages, const Buffer& buffer) const {
    for (const PackedMessage& message : messages) {
      if (message.chunk.in_place) continue;
      const Index share = ceil_div(message.chunk.nbytes, threads_);
      parallel_for(threads_, [&](int part) {
        const Index lo = std::min(part * share, message.chunk.nbytes);
        const Index hi = std::min(lo + share, message.chunk.nbytes);
        std::memset(buffer.at(message.buffer_offset + lo), 0, static_cast<std::size_t>(hi - lo));
      });
    }
  }

  void copy_blocks(const CopyList& copies, const char* source, char* target) const override {
    for (const CopyBlock& block : copies.blocks()) {
      const bool stream = block.nbytes() >= stream_threshold_bytes();
      if (block.nbytes() < parallel_bytes)
        copy(block, source, target, stream);
      else
        parallel_for(threads_, [&](int part) { copy(slice(block, part, threads_), source, target, stream); });
    }
    for (const ElementBlock& block : copies.element_blocks()) {
      const bool stream = block.nbytes() >= stream_threshold_bytes();
      const auto apply = [&](const ElementBlock& part) { copies.kernel()->apply(part, source, target, stream); };
      if (block.nbytes() < parallel_bytes)
        apply(block);
      else
        parallel_for(threads_, [&](int part) { apply(slice(block, part, threads_)); });
    }
    copies.runs().copy(source, target);
  }

  int threads_ = 1;
};

static const RegisteredStrategy<ThreadedPlan> threaded_strategy("Threaded");

}  // namespace dace_redist
