// Where a generated program keeps a plan between runs.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "plan/plan.hpp"
#include "plan/report.hpp"

namespace dace_redist {

/// What generated code knows when it runs: the communicator, the distributions, this rank's arrays, and options.
struct Arguments {
  MPI_Comm comm;
  WordSpan source, source_local;  ///< see Words, and Description for the local arrays
  WordSpan target, target_local;
  Index element_bytes;
  Options options;
};

/// Holds one node's plan of type P. It is made when the program starts, and again only if what it was made from
/// changes: sizes that depend on a loop, another communicator.
template <class P>
class Slot {
 public:
  Slot(const char* label, const char* strategy) {
    description_.label = label;
    description_.strategy = strategy;
  }

  ~Slot() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (mark_ != MPI_KEYVAL_INVALID && !finalized) MPI_Comm_free_keyval(&mark_);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  /// Makes the plan ahead of its first run. Collective.
  void make(const Arguments& arguments) {
    reporting([&] { fit(arguments); });
  }

  /// Runs the plan. Collective.
  void run(const Arguments& arguments, const void* source, void* target) {
    reporting([&] {
      fit(arguments);
      try {
        plan_->run(source, target);
      } catch (...) {
        plan_.release();  // kept for good: MPI may still write to its buffers
        throw;
      }
    });
  }

 private:
  void fit(const Arguments& now) {
    const bool same = plan_ && comm_ == now.comm && marked(now.comm) && now.source.equals(description_.source) &&
                      now.target.equals(description_.target) && now.element_bytes == description_.element_bytes &&
                      now.options == description_.options;
    const bool same_arrays = same && now.source_local.equals(description_.source_local) &&
                             now.target_local.equals(description_.target_local);
    if (same_arrays) return;
    if (same) plan_->set_local_arrays(now.source_local.words(), now.target_local.words());
    description_.source_local = now.source_local.words();
    description_.target_local = now.target_local.words();
    if (same) return;
    plan_.reset();
    description_.source = now.source.words();
    description_.target = now.target.words();
    description_.element_bytes = now.element_bytes;
    description_.options = now.options;
    comm_ = now.comm;
    plan_ = Plan::make<P>(description_, comm_);
    mark(comm_);
  }

  /// A communicator may be freed and its handle given to another one: the plan's own carries a mark.
  void mark(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD) return;
    if (mark_ == MPI_KEYVAL_INVALID)
      check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &mark_, nullptr),
            "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(comm, mark_, this), "MPI_Comm_set_attr");
  }

  bool marked(MPI_Comm comm) const {
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD) return true;
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm, mark_, &value, &found), "MPI_Comm_get_attr");
    return found != 0;
  }

  template <class Work>
  void reporting(const Work& work) const {
    try {
      work();
    } catch (const std::exception& error) {
      report(text(P::node_name, " \"", description_.label, "\": ", error.what()));
    }
  }

  Description description_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int mark_ = MPI_KEYVAL_INVALID;
  std::unique_ptr<P> plan_;
};

}  // namespace dace_redist
