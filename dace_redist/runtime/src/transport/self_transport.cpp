// SPDX-License-Identifier: BSD-3-Clause
#include "transport/self_transport.hpp"

#include "copy/threads.hpp"
#include "trace/trace.hpp"

namespace dace_redist {
namespace {

class SelfTransport final : public Transport {
 public:
  SelfTransport(const Link& link, Messages messages) : tensors_(&link.tensors), threads_(link.threads()) {
    replan(std::move(messages));
  }

  void replan(Messages messages) override {
    copies_.clear();
    nbytes_ = messages.self.nbytes;
    for (const Block& block : messages.self.blocks) {
      if (copies_.empty() || copies_.back().tensor != block.tensor) copies_.push_back({block.tensor, {}});
      copies_.back().list.append(block.box, (*tensors_)[static_cast<std::size_t>(block.tensor)]->steps.direct());
    }
  }

  void begin(const Arrays& arrays, Pace) override {
    if (copies_.empty()) return;
    const trace::Span span("copy", trace::no_peer, nbytes_);
    for (const Copies& copies : copies_)
      copy_threaded(copies.list, arrays.sources[copies.tensor], arrays.targets[copies.tensor], threads_);
  }

  bool progress() override { return false; }
  bool done() const override { return true; }
  bool runs_without_mpi() const override { return true; }

 private:
  struct Copies {
    int tensor;
    CopyList list;
  };

  const Tensors* tensors_;
  int threads_;
  Index nbytes_ = 0;
  std::vector<Copies> copies_;
};

}  // namespace

std::unique_ptr<Transport> make_self(const Link& link, Messages messages) {
  return std::make_unique<SelfTransport>(link, std::move(messages));
}

}  // namespace dace_redist
