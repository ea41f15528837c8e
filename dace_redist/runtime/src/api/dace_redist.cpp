// SPDX-License-Identifier: BSD-3-Clause
#include "dace_redist.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "layout/grid.hpp"
#include "node/shared_array.hpp"

using namespace dace_redist;

extern "C" {

const char* dr_error(void) { return last_error.c_str(); }
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
    append(encoding, shape, ndim);
    append(encoding, grid, grid_ndim);
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
    if (ranks) append(encoding, ranks, positions);
    make_distribution(std::move(encoding), distribution);
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
    append(encoding, shape, ndim);
    append(encoding, tile, ndim);
    append(encoding, owner, tiles);
    make_distribution(std::move(encoding), distribution);
  });
}

int dr_distribution_free(dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(distribution, "distribution");
    distributions.remove(*distribution, "*distribution");
    delete std::exchange(*distribution, nullptr);
  });
}

int dr_distribution_local_ndim(const dr_distribution* distribution, int* ndim) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    distributions.check(distribution, "distribution");
    check_pointer(ndim, "ndim");
    *ndim = distribution->checked.tiled() ? 1 : distribution->checked.ndim();
  });
}

int dr_distribution_local_shape(const dr_distribution* distribution, int rank, int64_t* shape) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    distributions.check(distribution, "distribution");
    const std::vector<Index> extents = distribution->checked.local_shape(rank);
    if (!extents.empty()) check_pointer(shape, "shape");
    std::copy(extents.begin(), extents.end(), shape);
  });
}

int dr_distribution_local_count(const dr_distribution* distribution, int rank, int64_t* count) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    distributions.check(distribution, "distribution");
    check_pointer(count, "count");
    *count = distribution->checked.cells(rank).empty()
                 ? 0
                 : checked_product(distribution->checked.local_shape(rank), "local shape");
  });
}

int dr_distribution_owner(const dr_distribution* distribution, const int64_t* index, int64_t* rank) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    distributions.check(distribution, "distribution");
    const int ndim = distribution->checked.ndim();
    if (ndim > 0) check_pointer(index, "index");
    check_pointer(rank, "rank");
    *rank = distribution->checked.owner(std::vector<Index>(index, index + ndim));
  });
}

int dr_options_init(dr_options* options) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(options, "options");
    *options = public_options(Options{});
  });
}

int dr_problem_init(dr_problem* problem) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(problem, "problem");
    *problem = dr_problem{};
    problem->strategy = "Hierarchical";
    problem->options = public_options(Options{});
    problem->operation = public_copy();
  });
}

int dr_plan_create(const dr_problem* problem, MPI_Comm comm, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    check_mpi(comm);
    Description description;
    all_or_none(comm, [&] {
      check_pointer(problem, "problem");
      check_pointer(plan, "plan");
      description = describe(*problem, comm_rank(comm));
    });
    *plan = make_handle(std::move(description), comm);
  });
}

int dr_plan_create_joint(int count, const dr_problem* problems, MPI_Comm comm, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    check_mpi(comm);
    std::vector<Description> tensors;
    all_or_none(comm, [&] {
      check_pointer(plan, "plan");
      if (count < 1) throw ArgumentError(text("count must be at least 1, got ", count));
      check_pointer(problems, "problems");
      for (int i = 0; i < count; ++i) tensors.push_back(describe(problems[i], comm_rank(comm)));
    });
    *plan = make_joint_handle(std::move(tensors), comm);
  });
}

int dr_plan_execute(dr_plan* plan, const void* source, void* target) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    dr_plan& ready = ready_plan(plan);
    check_addresses(ready, source, target);
    run_or_fail(ready, [&] { ready.plan->run(source, target); });
  });
}

int dr_plan_start(dr_plan* plan, const void* source, void* target, int progress, dr_request** request) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    dr_plan& ready = ready_plan(plan);
    check_addresses(ready, source, target);
    check_pointer(request, "request");
    if (progress != DR_PROGRESS_CALLS && progress != DR_PROGRESS_THREAD)
      throw ArgumentError(text("progress must be DR_PROGRESS_CALLS or DR_PROGRESS_THREAD, got ", progress));
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (progress == DR_PROGRESS_THREAD && level < MPI_THREAD_MULTIPLE)
      throw ArgumentError("a thread that moves a transfer on needs MPI_Init_thread with MPI_THREAD_MULTIPLE");
    auto made = std::make_unique<dr_request>();
    made->plan = plan;
    if (ready.joint) {  // the caller's lists of addresses need not outlive this call
      const std::size_t count = ready.plan->description().tensors.size();
      made->sources.assign(static_cast<const void* const*>(source), static_cast<const void* const*>(source) + count);
      made->targets.assign(static_cast<void* const*>(target), static_cast<void* const*>(target) + count);
      source = made->sources.data();
      target = made->targets.data();
    }
    if (progress == DR_PROGRESS_CALLS)
      run_or_fail(ready, [&] { ready.plan->start(source, target); });
    else
      made->thread = std::make_unique<std::thread>([made = made.get(), source, target]() noexcept {
        if (guarded(DR_ERROR_EXECUTE, "dr_plan_start", [&] { made->plan->plan->run(source, target); }) != DR_SUCCESS)
          made->failure = last_error;
        made->ended.store(true, std::memory_order_release);
      });
    ready.started = true;
    transfers.add(made.get());
    *request = made.release();
  });
}

int dr_request_test(dr_request* request, int* done) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    transfers.check(request, "request");
    check_pointer(done, "done");
    if (request->thread)
      request->done = request->ended.load(std::memory_order_acquire);
    else
      move_on(*request);
    *done = request->done;
  });
}

int dr_request_wait(dr_request** request) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    check_pointer(request, "request");
    transfers.remove(*request, "*request");
    const std::unique_ptr<dr_request> waited(std::exchange(*request, nullptr));
    waited->plan->started = false;
    if (waited->thread) waited->thread->join();
    run_or_fail(*waited->plan, [&] {
      if (!waited->failure.empty()) throw Error(waited->failure);
      if (!waited->thread && !waited->done) waited->plan->plan->finish();
    });
  });
}

int dr_plan_set_arrays(dr_plan* plan, const int64_t* source_shape, const int64_t* source_strides,
                       const int64_t* target_shape, const int64_t* target_strides) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    plans.check(plan, "plan");
    if (plan->started) throw ArgumentError("a transfer of the plan is under way: wait for it first");
    if (plan->joint) throw ArgumentError("the plan moves several tensors: make another one for other arrays");
    plan->plan->set_local_arrays(local_encoding(plan->source, plan->rank, source_shape, source_strides),
                                 local_encoding(plan->target, plan->rank, target_shape, target_strides));
  });
}

int dr_plan_set_stream(dr_plan* plan, void* stream) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    plans.check(plan, "plan");
    if (plan->started) throw ArgumentError("a transfer of the plan is under way: wait for it first");
    plan->plan->set_stream(stream);
  });
}

int dr_plan_free(dr_plan** plan) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(plan, "plan");
    plans.check(*plan, "*plan");
    if ((*plan)->started) throw ArgumentError("a transfer of the plan is under way: wait for it first");
    plans.remove(*plan, "*plan");
    const std::unique_ptr<dr_plan> freed(std::exchange(*plan, nullptr));
    if (freed->failed) (void)freed->plan.release();  // kept for good: MPI may still write to its buffers
  });
}

int dr_memory_create(int64_t nbytes, void** memory) {
  return guarded(DR_ERROR_MEMORY, __func__, [&] {
    check_pointer(memory, "memory");
    if (nbytes < 0) throw ArgumentError(text("nbytes must be 0 or more, got ", nbytes));
    void* const made = allocate_shared(nbytes);
    memories.add(made);
    *memory = made;
  });
}

int dr_memory_free(void** memory) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(memory, "memory");
    memories.remove(*memory, "*memory");
    free_shared(std::exchange(*memory, nullptr));
  });
}

}  // extern "C"
