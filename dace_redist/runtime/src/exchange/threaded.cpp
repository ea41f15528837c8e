// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy Threaded: Pack with the threads of a rank sharing each copy.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3.

#include <algorithm>
#include <cstring>
#include <vector>

#include "copy/threads.hpp"
#include "exchange/pack.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// Packs and unpacks with several OpenMP threads; only the calling thread calls MPI (MPI_THREAD_FUNNELED). Buffers
/// are first touched by the threads that use them, so that they lie in those threads' memory (NUMA).
class ThreadedPlan final : public PackPlan {
 private:
  void prepare() override {
    threads_ = thread_count(options().threads);
    PackPlan::prepare();
    touch(sends(), send_buffer());
    touch(receives(), receive_buffer());
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
    copy_threaded(copies, source, target, threads_);
  }

  int threads_ = 1;
};

static const RegisteredStrategy<ThreadedPlan> threaded_strategy("Threaded");

}  // namespace dace_redist
