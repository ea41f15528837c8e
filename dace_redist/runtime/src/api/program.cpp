// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "api/handles.hpp"
#include "core/report.hpp"
#include "dace_redist_program.hpp"
#include "shm/array_allocator.hpp"

namespace dace_redist::program {

namespace {

LocalArray local_array(const Numbers& numbers) {
  const std::int64_t* const half = numbers.begin + numbers.count / 2;
  return {{numbers.begin, half}, {half, numbers.begin + numbers.count}};
}

void append(Encoding& words, const Numbers& numbers) {
  words.push_back(static_cast<Index>(numbers.count));
  words.insert(words.end(), numbers.begin, numbers.begin + numbers.count);
}

template <class T>
void append_bytes(Encoding& words, const T& value) {
  static_assert(sizeof value % sizeof(Index) == 0);
  words.resize(words.size() + sizeof value / sizeof(Index));
  std::memcpy(words.data() + words.size() - sizeof value / sizeof(Index), &value, sizeof value);
}

}  // namespace

/// The plan of a node, of one or several tensors.
class Plan::State {
 public:
  State(const char* kind, const char* label, const char* strategy) : kind_(kind), label_(label), strategy_(strategy) {}

  /// Runs `work`, and reports what it throws. After an error in this or another node, until the program has returned to
  /// Python, nothing is moved any more: the other ranks learn of it in the node that they are in.
  template <class Work>
  void reporting(const Work& work) {
    if (python::waiting) {
      if (plan) plan->fail("an earlier node of the program failed");
      return;
    }
    try {
      work();
    } catch (const std::exception& error) {
      report(text(kind_, " \"", label_, "\": ", error.what()));
    }
  }

  /// Makes the plan, or has it take other arrays, if anything has changed since the last run.
  /// \return false on a rank that has no part in it: the communicator is null.
  bool fit(std::initializer_list<Arguments> now) {
    const MPI_Comm comm = now.begin()->comm;
    if (comm == MPI_COMM_NULL) return false;
    check_mpi(comm);
    const bool failed = plan && plan->has_failed();
    if (plan && !failed) plan->check_idle();
    read(now);
    if (!plan || failed || description_ != made_from_ || !plan->is_on(comm)) {
      plan.reset();
      plan = dace_redist::Plan::make(comm, [&] { return problem(now); });
      made_from_ = description_;
    } else if (arrays_ != made_for_) {
      std::vector<LocalArray> sources, targets;
      for (const Arguments& one : now) {
        sources.push_back(local_array(one.source_local));
        targets.push_back(local_array(one.target_local));
      }
      plan->set_arrays(sources, targets);
    }
    made_for_ = arrays_;
    return true;
  }

  PlanPointer plan;

 private:
  void read(std::initializer_list<Arguments> now) {
    description_.clear();
    arrays_.clear();
    append_bytes(description_, now.begin()->options);
    for (const Arguments& one : now) {
      for (const Numbers& list : {one.source, one.target, one.index_map}) append(description_, list);
      for (const Index number : {one.element_bytes, Index{one.source_memory}, Index{one.target_memory}})
        description_.push_back(number);
      append_bytes(description_, one.operation);
      append(arrays_, one.source_local);
      append(arrays_, one.target_local);
    }
  }

  Problem problem(std::initializer_list<Arguments> now) const {
    Problem problem{label_, strategy_, now.begin()->options, {}};
    for (const Arguments& one : now) {
      TensorProblem& tensor =
          problem.tensors.emplace_back(decoded({one.element_bytes, one.source, one.target, one.index_map, one.operation,
                                                one.source_memory, one.target_memory}));
      tensor.source_array = local_array(one.source_local);
      tensor.target_array = local_array(one.target_local);
    }
    return problem;
  }

  const std::string kind_, label_, strategy_;
  Encoding made_from_, made_for_;  // of the plan: all that it is made from, and its local arrays
  Encoding description_, arrays_;  // of the run at hand
};

Plan::Plan(const char* kind, const char* label, const char* strategy)
    : state_(std::make_unique<State>(kind, label, strategy)) {}
Plan::~Plan() = default;

void Plan::make(std::initializer_list<Arguments> tensors) {
  state_->reporting([&] { state_->fit(tensors); });
}

void Plan::run(std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
               std::initializer_list<void*> targets, void* stream) {
  state_->reporting([&] {
    if (!state_->fit(tensors)) return;
    state_->plan->set_stream(stream);
    state_->plan->run(sources.begin(), targets.begin());
  });
}

void Plan::start(const Arguments& arguments, const void* source, void* target, int progress, void* stream) {
  state_->reporting([&] {
    if (!state_->fit({arguments})) return;
    state_->plan->set_stream(stream);
    start_plan(*state_->plan, &source, &target, progress);
  });
}

void Plan::wait(std::optional<void*> stream) {
  state_->reporting([&] {
    if (!state_->plan) throw Error("no transfer is under way: it was waited for, or not started");
    state_->plan->wait(stream);
  });
}

void* allocate(bool on_node, std::initializer_list<std::int64_t> nbytes) {
  const std::int64_t most = std::max(nbytes);
  void* const bytes = allocate_array(static_cast<std::size_t>(most), false, on_node ? 0 : SIZE_MAX);
  if (!bytes) throw std::bad_alloc();
  return bytes;
}
void free(void* memory) noexcept { free_array(memory); }

}  // namespace dace_redist::program
