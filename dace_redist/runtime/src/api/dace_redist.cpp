// SPDX-License-Identifier: BSD-3-Clause
#include "dace_redist.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "layout/grid.hpp"

using namespace dace_redist;

extern "C" {

const char* dr_error(void) { return last_error().c_str(); }
const char* dr_version(void) { return DACE_REDIST_VERSION; }

int dr_distribution_create_blocks(int ndim, const int64_t* shape, int grid_ndim, const int64_t* grid, const int* axes,
                                  const int64_t* block, const int64_t* ranks, dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_ndim(ndim, "ndim");
    check_ndim(grid_ndim, "grid_ndim");
    if (ndim > 0) check_pointer(shape, "shape");
    if (grid_ndim > 0) check_pointer(grid, "grid");
    check_pointer(distribution, "distribution");
    Encoding encoding{blocked_kind, ndim, grid_ndim};
    const auto append = [&encoding](const std::int64_t* values, Index count) {
      encoding.insert(encoding.end(), values, values + count);
    };
    append(shape, ndim);
    append(grid, grid_ndim);
    for (int i = 0; i < ndim; ++i) encoding.push_back(axes ? axes[i] : i < grid_ndim ? i : DR_NOT_SPLIT);
    for (int i = 0; i < ndim; ++i) encoding.push_back(block ? block[i] : DR_BLOCK_DEFAULT);
    encoding.insert(encoding.end(), static_cast<std::size_t>(grid_ndim),
                    -1);  // every coordinate of the grid takes part
    Index positions = 1;
    for (int i = 0; i < grid_ndim; ++i) {
      if (grid[i] < 1) throw ArgumentError(text("grid[", i, "] must be at least 1, got ", grid[i]));
      if (positions > std::numeric_limits<Index>::max() / grid[i]) throw ArgumentError("the process grid is too large");
      positions *= grid[i];
    }
    encoding.push_back(ranks ? positions : 0);
    if (ranks) append(ranks, positions);
    make_distribution(encoding, distribution);
  });
}

int dr_distribution_create_tiles(int ndim, const int64_t* shape, const int64_t* tile, const int64_t* owner,
                                 dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_ndim(ndim, "ndim");
    if (ndim > 0) check_pointer(shape, "shape");
    if (ndim > 0) check_pointer(tile, "tile");
    check_pointer(distribution, "distribution");
    const std::vector<Index> grid = tile_grid({shape, shape + ndim}, {tile, tile + ndim}, "distribution");
    const Index tiles = checked_product(grid, "distribution: tile grid");
    if (tiles > 0) check_pointer(owner, "owner");
    Encoding encoding{tiled_kind, ndim};
    encoding.insert(encoding.end(), shape, shape + ndim);
    encoding.insert(encoding.end(), tile, tile + ndim);
    encoding.insert(encoding.end(), owner, owner + tiles);
    make_distribution(encoding, distribution);
  });
}

int dr_distribution_free(dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(distribution, "distribution");
    Handles::distributions().remove(*distribution, "*distribution");
    delete std::exchange(*distribution, nullptr);
  });
}

int dr_distribution_local_ndim(const dr_distribution* distribution, int* ndim) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    Handles::distributions().check(distribution, "distribution");
    check_pointer(ndim, "ndim");
    *ndim = distribution->checked.tiled() ? 1 : distribution->checked.ndim();
  });
}

int dr_distribution_local_shape(const dr_distribution* distribution, int rank, int64_t* shape) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    Handles::distributions().check(distribution, "distribution");
    const std::vector<Index> extents = distribution->checked.local_shape(rank);
    if (!extents.empty()) check_pointer(shape, "shape");
    std::copy(extents.begin(), extents.end(), shape);
  });
}

int dr_distribution_local_count(const dr_distribution* distribution, int rank, int64_t* count) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    Handles::distributions().check(distribution, "distribution");
    check_pointer(count, "count");
    *count = distribution->checked.cells(rank).empty()
                 ? 0
                 : checked_product(distribution->checked.local_shape(rank), "local shape");
  });
}

int dr_distribution_owner(const dr_distribution* distribution, const int64_t* index, int64_t* rank) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    Handles::distributions().check(distribution, "distribution");
    const int ndim = distribution->checked.ndim();
    if (ndim > 0) check_pointer(index, "index");
    check_pointer(rank, "rank");
    *rank = distribution->checked.owner(std::vector<Index>(index, index + ndim));
  });
}

int dr_options_init(dr_options* options) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(options, "options");
    *options = default_options();
  });
}

int dr_problem_init(dr_problem* problem) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(problem, "problem");
    *problem = dr_problem{};
    problem->strategy = "Hierarchical";
    problem->options = default_options();
    problem->operation = {DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP};
  });
}

namespace {

/// A plan of problems whose strategy and options are equal.
int create_plan(const char* function, int count, const dr_problem* problems, bool joint, MPI_Comm comm,
                dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, function, [&] {
    check_mpi(comm);
    dr_plan* const made = make_handle(comm, joint, [&] {
      check_pointer(plan, "plan");
      if (count < 1) throw ArgumentError(text("count must be at least 1, got ", count));
      check_pointer(problems, joint ? "problems" : "problem");
      const auto strategy_of = [](const dr_problem& one) { return one.strategy ? one.strategy : "Hierarchical"; };
      int rank = 0;
      check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
      Problem problem{
          problems->label ? problems->label : "redistribution", strategy_of(*problems), problems->options, {}};
      for (const dr_problem* one = problems; one != problems + count; ++one) {
        if (problem.strategy != strategy_of(*one))
          throw Error(
              text("several tensors at once move by one strategy, got ", problem.strategy, " and ", strategy_of(*one)));
        TensorProblem& tensor = problem.tensors.emplace_back(tensor_of(*one));
        tensor.source_array = local_array_of(tensor.source, rank, one->source_shape, one->source_strides);
        tensor.target_array = local_array_of(tensor.target, rank, one->target_shape, one->target_strides);
      }
      return problem;
    });
    *plan = made;
  });
}

/// The arrays of a call: lists of addresses, of a single tensor the addresses themselves.
struct ArraysOfCall {
  ArraysOfCall(const dr_plan& plan, const void* const& source, void* const& target)
      : sources(plan.joint ? static_cast<const void* const*>(source) : &source),
        targets(plan.joint ? static_cast<void* const*>(target) : &target) {
    if (!plan.joint) return;
    check_pointer(source, "source");
    check_pointer(target, "target");
  }
  const void* const* sources;
  void* const* targets;
};

/// Starts a thread that carries out a transfer.
void start_thread(dr_request& request, const ArraysOfCall& arrays) {
  const std::size_t count = request.plan->plan->problem().tensors.size();
  request.thread = std::make_unique<std::thread>(
      [&request, sources = std::vector<const void*>(arrays.sources, arrays.sources + count),
       targets = std::vector<void*>(arrays.targets, arrays.targets + count)]() noexcept {
        const auto work = [&] { request.plan->plan->run(sources.data(), targets.data()); };
        if (guarded(DR_ERROR_EXECUTE, "dr_plan_start", work) != DR_SUCCESS) request.failure = last_error();
        request.ended.store(true, std::memory_order_release);
      });
}

/// Runs `work` of a started transfer. After a failure every call repeats the error.
void advance_or_fail(dr_request& request, const std::function<void()>& work) {
  if (!request.failure.empty()) throw Error(request.failure);
  try {
    work();
  } catch (const std::exception& error) {
    request.failure = error.what();
    request.plan->failed = true;
    throw;
  }
}

}  // namespace

int dr_plan_create(const dr_problem* problem, MPI_Comm comm, dr_plan** plan) {
  return create_plan(__func__, 1, problem, false, comm, plan);
}

int dr_plan_create_joint(int count, const dr_problem* problems, MPI_Comm comm, dr_plan** plan) {
  return create_plan(__func__, count, problems, true, comm, plan);
}

int dr_plan_execute(dr_plan* plan, const void* source, void* target) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    dr_plan& ready = ready_plan(plan);
    const ArraysOfCall arrays(ready, source, target);
    check_addresses(ready, arrays.sources, arrays.targets);
    run_plan(ready, arrays.sources, arrays.targets);
  });
}

int dr_plan_start(dr_plan* plan, const void* source, void* target, int progress, dr_request** request) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    dr_plan& ready = ready_plan(plan);
    const ArraysOfCall arrays(ready, source, target);
    check_addresses(ready, arrays.sources, arrays.targets);
    check_pointer(request, "request");
    if (progress != DR_PROGRESS_CALLS && progress != DR_PROGRESS_THREAD)
      throw ArgumentError(text("progress must be DR_PROGRESS_CALLS or DR_PROGRESS_THREAD, got ", progress));
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (progress == DR_PROGRESS_THREAD && level < MPI_THREAD_MULTIPLE)
      throw ArgumentError("a thread that advances a transfer needs MPI_Init_thread with MPI_THREAD_MULTIPLE");
    auto made = std::make_unique<dr_request>();
    made->plan = plan;
    Handles::requests().add(made.get());
    try {
      if (progress == DR_PROGRESS_CALLS)
        ready.plan->start(arrays.sources, arrays.targets);
      else
        start_thread(*made, arrays);
    } catch (...) {
      Handles::requests().remove(made.get(), "request");
      ready.failed = true;
      throw;
    }
    ready.started = true;
    *request = made.release();
  });
}

int dr_request_test(dr_request* request, int* done) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    Handles::requests().check(request, "request");
    check_pointer(done, "done");
    if (request->thread)
      request->done = request->ended.load(std::memory_order_acquire);
    else
      advance_or_fail(*request, [&] { request->done = request->done || request->plan->plan->test(); });
    *done = request->done;
  });
}

int dr_request_wait(dr_request** request) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    check_pointer(request, "request");
    Handles::requests().remove(*request, "*request");
    const std::unique_ptr<dr_request> waited(std::exchange(*request, nullptr));
    waited->plan->started = false;
    if (waited->thread) waited->thread->join();
    if (waited->thread && !waited->failure.empty()) waited->plan->failed = true;
    advance_or_fail(*waited, [&] {
      if (!waited->thread && !waited->done) waited->plan->plan->wait();
    });
  });
}

int dr_plan_set_arrays(dr_plan* plan, const int64_t* source_shape, const int64_t* source_strides,
                       const int64_t* target_shape, const int64_t* target_strides) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    Handles::plans().check(plan, "plan");
    if (plan->started) throw ArgumentError("a transfer of the plan is under way: wait for it first");
    if (plan->joint) throw ArgumentError("the plan moves several tensors: make another one for other arrays");
    const TensorProblem& tensor = plan->plan->problem().tensors.front();
    const int rank = plan->plan->rank();
    plan->plan->set_arrays({local_array_of(tensor.source, rank, source_shape, source_strides)},
                           {local_array_of(tensor.target, rank, target_shape, target_strides)});
  });
}

int dr_plan_set_stream(dr_plan* plan, void* stream) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    Handles::plans().check(plan, "plan");
    if (plan->started) throw ArgumentError("a transfer of the plan is under way: wait for it first");
    plan->plan->set_stream(stream);
  });
}

int dr_plan_free(dr_plan** plan) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(plan, "plan");
    Handles::plans().check(*plan, "*plan");
    if ((*plan)->started) throw ArgumentError("a transfer of the plan is under way: wait for it first");
    Handles::plans().remove(*plan, "*plan");
    const std::unique_ptr<dr_plan> freed(std::exchange(*plan, nullptr));
    if (freed->failed) (void)freed->plan.release();  // kept for good: MPI may still write to its buffers
  });
}

int dr_memory_create(int64_t nbytes, void** memory) {
  return guarded(DR_ERROR_MEMORY, __func__, [&] {
    check_pointer(memory, "memory");
    if (nbytes < 0) throw ArgumentError(text("nbytes must be 0 or more, got ", nbytes));
    const Arena::Allocation made = Arena::own().allocate(nbytes, true);
    if (!made.zeros) std::memset(made.bytes, 0, static_cast<std::size_t>(nbytes));
    Handles::memories().add(made.bytes);
    *memory = made.bytes;
  });
}

int dr_memory_free(void** memory) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(memory, "memory");
    Handles::memories().remove(*memory, "*memory");
    Arena::free(std::exchange(*memory, nullptr));
  });
}

}  // extern "C"
