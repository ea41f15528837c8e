// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "dace_redist_program.hpp"
#include "node/shared_array.hpp"
#include "plan/public_options.hpp"
#include "plan/registry.hpp"
#include "plan/report.hpp"

namespace dace_redist::program {

class Plan::Implementation {
 public:
  Implementation(const char* label, const char* strategy) {
    description_.label = label;
    description_.strategy = strategy;
  }

  ~Implementation() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (mark_ != MPI_KEYVAL_INVALID && !finalized) MPI_Comm_free_keyval(&mark_);
  }

  void make(const Arguments& arguments) {
    reporting([&] { fit(arguments); });
  }

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
  static bool equal(const Numbers& numbers, const Encoding& encoding) {
    return numbers.count == encoding.size() && std::equal(encoding.begin(), encoding.end(), numbers.begin);
  }
  static Encoding encoding(const Numbers& numbers) { return Encoding(numbers.begin, numbers.begin + numbers.count); }

  /// Makes the plan, or has it fit other arrays, if anything changed since the last run.
  void fit(const Arguments& now) {
    const Options options = internal_options(now.options);
    const ElementOperation operation = internal_operation(now.operation);
    const bool same = plan_ && comm_ == now.comm && marked(now.comm) && equal(now.source, description_.source) &&
                      equal(now.target, description_.target) && now.element_bytes == description_.element_bytes &&
                      equal(now.index_map, description_.index_map) && options == description_.options &&
                      operation == description_.operation;
    const bool same_arrays = same && equal(now.source_local, description_.source_local) &&
                             equal(now.target_local, description_.target_local);
    if (same_arrays) return;
    if (same) plan_->set_local_arrays(encoding(now.source_local), encoding(now.target_local));
    description_.source_local = encoding(now.source_local);
    description_.target_local = encoding(now.target_local);
    if (same) return;
    plan_.reset();
    description_.source = encoding(now.source);
    description_.target = encoding(now.target);
    description_.element_bytes = now.element_bytes;
    description_.index_map = encoding(now.index_map);
    description_.operation = operation;
    description_.options = options;
    comm_ = now.comm;
    plan_ = plan_maker(description_)(description_, comm_);
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
      const bool sums = description_.strategy.rfind("SumReplicas", 0) == 0;
      report(text(sums ? "SumReplicas" : "Redistribute", " \"", description_.label, "\": ", error.what()));
    }
  }

  Description description_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int mark_ = MPI_KEYVAL_INVALID;
  std::unique_ptr<dace_redist::Plan> plan_;
};

Plan::Plan(const char* label, const char* strategy)
    : implementation_(std::make_unique<Implementation>(label, strategy)) {}
Plan::~Plan() = default;
void Plan::make(const Arguments& arguments) { implementation_->make(arguments); }
void Plan::run(const Arguments& arguments, const void* source, void* target) {
  implementation_->run(arguments, source, target);
}

void* allocate(bool on_node, std::initializer_list<std::int64_t> nbytes) { return allocate_for_all(on_node, nbytes); }
void free(void* memory) noexcept { free_shared(memory); }

}  // namespace dace_redist::program
