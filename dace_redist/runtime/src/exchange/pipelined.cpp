// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Strategy Pipelined: all messages move in chunks through a small ring of buffers.

#include "exchange/chunk_pipeline.hpp"
#include "plan/plan.hpp"
#include "plan/registry.hpp"

namespace dace_redist {

/// A ChunkPipeline for all messages; what stays on the rank is copied while the first chunks are on their way.
class PipelinedPlan final : public Plan {
 private:
  void prepare() override { pipeline_.prepare(comm(), tag, sends_in_order(), receives_in_order(), steps(), options()); }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    while (!pipeline_.finished()) pipeline_.wait();
  }

  void begin(const char* source, char* target) override {
    pipeline_.begin(source, target);
    copy_self(source, target);
  }

  bool advance() override {
    while (!pipeline_.finished())
      if (!pipeline_.progress()) return false;
    return true;
  }

  ChunkPipeline pipeline_;
};

static const RegisteredStrategy<PipelinedPlan> pipelined_strategy("Pipelined");

}  // namespace dace_redist
