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

bool same(const Encoding& known, const Numbers& now) {
  return std::equal(known.begin(), known.end(), now.begin, now.begin + now.count);
}
bool same(const LocalArray& known, const Numbers& now) {
  const std::int64_t* const half = now.begin + now.count / 2;
  return same(known.shape, {now.begin, half - now.begin}) && same(known.strides, {half, now.begin + now.count - half});
}

/// Whether a tensor is described by these arguments, but for its local arrays.
bool same(const TensorProblem& known, const Arguments& now) {
  return same(known.source.encoding(), now.source) && same(known.target.encoding(), now.target) &&
         same(known.index_map, now.index_map) && known.element_bytes == now.element_bytes &&
         known.operation == decoded(now.operation) && static_cast<int>(known.source_memory) == now.source_memory &&
         static_cast<int>(known.target_memory) == now.target_memory;
}

}  // namespace

/// The plan of a node, of one or several tensors.
class Plan::State {
 public:
  State(const char* kind, const char* label, const char* strategy) : kind_(kind), label_(label), strategy_(strategy) {}

  /// Runs `work`, and reports what it throws.
  template <class Work>
  void reporting(const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      report(text(kind_, " \"", label_, "\": ", error.what()));
    }
  }

  /// The same, but after an error in this or another node, until the program has returned to Python, nothing is moved
  /// any more: the other ranks learn of it in the node that they are in.
  template <class Work>
  void moving(const Work& work) {
    if (!python::waiting)
      reporting(work);
    else if (plan)
      plan->fail("an earlier node of the program failed");
  }

  /// Takes tensors that are the same at each run.
  void keep(std::initializer_list<Arguments> constants) {
    reporting([&] { constants_ = problem(constants); });
  }

  /// Makes the plan, or has it take other arrays, if anything has changed since the last run.
  /// \param now  the tensors; none: those that are the same at each run.
  /// \return false on a rank that has no part in it: the communicator is null.
  bool fit(MPI_Comm comm, std::initializer_list<Arguments> now) {
    if (comm == MPI_COMM_NULL) return false;
    check_mpi(comm);
    const bool failed = plan && plan->has_failed();
    if (plan && !failed) plan->check_idle();
    if (!plan || failed || !is_made_from(now) || !plan->is_on(comm)) {
      plan.reset();
      plan = dace_redist::Plan::make(comm, [&] { return now.size() == 0 ? constants_ : problem(now); });
    } else if (!is_made_for_arrays_of(now)) {
      std::vector<LocalArray> sources, targets;
      for (const Arguments& one : now) {
        sources.push_back(local_array(one.source_local));
        targets.push_back(local_array(one.target_local));
      }
      plan->set_arrays(sources, targets);
    }
    return true;
  }

  PlanPointer plan;

 private:
  bool is_made_from(std::initializer_list<Arguments> now) const {
    if (now.size() == 0) return true;
    const Problem& problem = plan->problem();
    return std::memcmp(&problem.options, &now.begin()->options, sizeof problem.options) == 0 &&
           std::equal(problem.tensors.begin(), problem.tensors.end(), now.begin(), now.end(),
                      [](const TensorProblem& known, const Arguments& one) { return same(known, one); });
  }

  bool is_made_for_arrays_of(std::initializer_list<Arguments> now) const {
    return std::equal(now.begin(), now.end(), plan->problem().tensors.begin(),
                      [](const Arguments& one, const TensorProblem& known) {
                        return same(known.source_array, one.source_local) && same(known.target_array, one.target_local);
                      });
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
  Problem constants_;
};

Plan::Plan(const char* kind, const char* label, const char* strategy)
    : state_(std::make_unique<State>(kind, label, strategy)) {}
Plan::~Plan() = default;

void Plan::make(MPI_Comm comm, std::initializer_list<Arguments> tensors) {
  state_->keep(tensors);
  state_->moving([&] { state_->fit(comm, {}); });
}

void Plan::run(MPI_Comm comm, std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
               std::initializer_list<void*> targets, void* stream) {
  state_->moving([&] {
    if (!state_->fit(comm, tensors)) return;
    state_->plan->set_stream(stream);
    state_->plan->run(sources.begin(), targets.begin());
  });
}

void Plan::start(MPI_Comm comm, std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
                 std::initializer_list<void*> targets, int progress, std::int64_t* request, void* stream) {
  state_->moving([&] {
    if (!state_->fit(comm, tensors)) return;
    state_->plan->set_stream(stream);
    start_plan(*state_->plan, sources.begin(), targets.begin(), progress);
  });
  *request = reinterpret_cast<std::int64_t>(this);
}

void Plan::wait(std::optional<void*> stream) {
  state_->moving([&] {
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
