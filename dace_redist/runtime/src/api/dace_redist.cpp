// SPDX-License-Identifier: BSD-3-Clause
#include "dace_redist.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "api/handles.hpp"

using namespace dace_redist;

namespace {

void check_ndim(int ndim, const char* name) {
  if (ndim < 0 || ndim > max_dims) throw ArgumentError(text(name, " must be from 0 to ", max_dims, ", got ", ndim));
}

const Distribution& distribution_of(const dr_distribution* handle, const char* name = "distribution") {
  handles<dr_distribution>().check(handle, name);
  return handle->checked;
}

Plan& plan_of(dr_plan* handle) {
  handles<dr_plan>().check(handle, "plan");
  return *handle->plan;
}

dr_distribution* make_distribution(Encoding encoding) {
  return make_handle(dr_distribution{Distribution(std::move(encoding))}).release();
}

/// Axes, region and reshape of a problem, as an IndexMap takes them.
Encoding index_map_of(const dr_problem& problem, int ndim) {
  const bool whole = !problem.region_shape;
  if (whole != !problem.region_source_offset || whole != !problem.region_target_offset)
    throw ArgumentError("a region needs region_source_offset, region_target_offset and region_shape");
  if (problem.reshape && !whole) throw ArgumentError("a region and a reshape cannot be combined");
  Encoding encoding;
  if (problem.reshape) encoding.push_back(reshape_after_axes);
  if (whole && !problem.axes && !problem.reshape) return encoding;
  for (int i = 0; i < ndim; ++i) encoding.push_back(problem.axes ? problem.axes[i] : i);
  if (whole) return encoding;
  for (const std::int64_t* part : {problem.region_source_offset, problem.region_target_offset, problem.region_shape})
    encoding.insert(encoding.end(), part, part + ndim);
  return encoding;
}

LocalArray local_array_of(const Distribution& distribution, int rank, const std::int64_t* shape,
                          const std::int64_t* strides) {
  if (!shape && !strides) return {};
  LocalArray array{distribution.local_shape(rank), {}};
  if (shape) std::copy_n(shape, array.shape.size(), array.shape.begin());
  for (const Index extent : array.shape)
    if (extent < 0) throw Error(text("the extents of a local array must be at least 0, got ", tuple_text(array.shape)));
  checked_product(array.shape, "local array");
  array.strides = c_strides(array.shape);
  if (strides) std::copy_n(strides, array.shape.size(), array.strides.begin());
  return array;
}

TensorProblem tensor_of(const dr_problem& problem, const PlanRanks& ranks) {
  const Distribution &source = distribution_of(problem.source, "problem->source"),
                     &target = distribution_of(problem.target, "problem->target");
  ranks.check_sends(problem);
  TensorProblem tensor = make_tensor(ranks.placed(source, "source", true), ranks.placed(target, "target", false),
                                     problem.element_bytes, index_map_of(problem, source.ndim()), problem.operation,
                                     problem.source_memory, problem.target_memory);
  const int rank = comm_rank(ranks.comm());
  tensor.source_array = local_array_of(tensor.source, rank, problem.source_shape, problem.source_strides);
  tensor.target_array = local_array_of(tensor.target, rank, problem.target_shape, problem.target_strides);
  return tensor;
}

int create_plan(const char* function, int count, const dr_problem* problems, bool joint, MPI_Comm comm,
                dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, function, [&] {
    const int sends = problems && count > 0 ? problems->sends != 0 : -1;
    dr_plan* const made = make_plan(comm, sends, joint, [&](const PlanRanks& ranks) {
      check_pointer(plan, "plan");
      if (count < 1) throw ArgumentError(text("count must be at least 1, got ", count));
      check_pointer(problems, joint ? "problems" : "problem");
      return problem_of(count, problems, ranks);
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

}  // namespace

Problem dace_redist::problem_of(int count, const dr_problem* problems, const PlanRanks& ranks) {
  Problem problem = settings_of(*problems);
  for (const dr_problem* one = problems; one != problems + count; ++one) {
    const std::string strategy = settings_of(*one).strategy;
    if (problem.strategy != strategy)
      throw Error(text("several tensors at once move by one strategy, got ", problem.strategy, " and ", strategy));
    problem.tensors.push_back(tensor_of(*one, ranks));
  }
  return problem;
}

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
    for (int i = 0; i < ndim; ++i) encoding.push_back(block ? block[i] : DR_BLOCK_BALANCED);
    encoding.insert(encoding.end(), static_cast<std::size_t>(grid_ndim),
                    -1);  // every coordinate of the grid takes part
    for (int i = 0; i < grid_ndim; ++i)
      if (grid[i] < 1) throw ArgumentError(text(entry("grid", counted(i)), " must be at least 1, got ", grid[i]));
    const Index positions = checked_product({grid, grid + grid_ndim}, "process grid");
    encoding.push_back(ranks ? positions : 0);
    if (ranks) append(ranks, positions);
    const std::int64_t* lengths = block ? block + ndim : nullptr;
    for (int i = 0; block && i < ndim; ++i) {
      if (block[i] != block_lengths) continue;
      const int axis = axes ? axes[i] : i < grid_ndim ? i : DR_NOT_SPLIT;
      const Index parts = axis >= 0 && axis < grid_ndim ? grid[axis] : 1;
      append(lengths, parts);
      lengths += parts;
    }
    *distribution = make_distribution(std::move(encoding));
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
    *distribution = make_distribution(std::move(encoding));
  });
}

int dr_distribution_create_boxes(int ndim, const int64_t* shape, int64_t count, const int64_t* offset,
                                 const int64_t* extent, const int64_t* owner, dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_ndim(ndim, "ndim");
    if (ndim > 0) check_pointer(shape, "shape");
    if (count < 0) throw ArgumentError(text("count must be at least 0, got ", count));
    if (count > Boxes::max_count) throw ArgumentError(text("more than ", Boxes::max_count, " boxes"));
    if (count > 0 && ndim > 0) check_pointer(offset, "offset");
    if (count > 0 && ndim > 0) check_pointer(extent, "extent");
    if (count > 0) check_pointer(owner, "owner");
    check_pointer(distribution, "distribution");
    Encoding encoding{boxed_kind, ndim};
    encoding.insert(encoding.end(), shape, shape + ndim);
    encoding.push_back(count);
    for (Index box = 0; box < count; ++box) {
      encoding.push_back(owner[box]);
      for (const int64_t* const part : {offset, extent})
        encoding.insert(encoding.end(), part + box * ndim, part + (box + 1) * ndim);
    }
    *distribution = make_distribution(std::move(encoding));
  });
}

int dr_distribution_create_halo(const dr_distribution* owned, const int64_t* halo, const int* periodic,
                                dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    const Encoding& inner = distribution_of(owned, "owned").encoding();
    const int ndim = owned->checked.ndim();
    if (ndim > 0) check_pointer(halo, "halo");
    check_pointer(distribution, "distribution");
    if (owned->checked.has_margins()) throw ArgumentError("owned must be a distribution without a halo");
    Encoding encoding{margins_kind, ndim};
    encoding.insert(encoding.end(), halo, halo + ndim);
    for (int i = 0; i < ndim; ++i) encoding.push_back(periodic && periodic[i] ? 1 : 0);
    encoding.insert(encoding.end(), inner.begin(), inner.end());
    *distribution = make_distribution(std::move(encoding));
  });
}

int dr_distribution_free(dr_distribution** distribution) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] { take_handle(distribution, "distribution"); });
}

int dr_distribution_local_ndim(const dr_distribution* distribution, int rank, int* ndim) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    const Distribution& checked = distribution_of(distribution);
    check_pointer(ndim, "ndim");
    *ndim = static_cast<int>(checked.local_shape(rank).size());
  });
}

int dr_distribution_local_shape(const dr_distribution* distribution, int rank, int64_t* shape) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    const std::vector<Index> extents = distribution_of(distribution).local_shape(rank);
    if (!extents.empty()) check_pointer(shape, "shape");
    std::copy(extents.begin(), extents.end(), shape);
  });
}

int dr_distribution_local_count(const dr_distribution* distribution, int rank, int64_t* count) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    const Distribution& checked = distribution_of(distribution);
    check_pointer(count, "count");
    *count = checked.cells(rank).empty() ? 0 : checked_product(checked.local_shape(rank), "local shape");
  });
}

int dr_distribution_owner(const dr_distribution* distribution, const int64_t* index, int64_t* rank) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    const Distribution& checked = distribution_of(distribution);
    if (checked.ndim() > 0) check_pointer(index, "index");
    check_pointer(rank, "rank");
    *rank = checked.owner(std::vector<Index>(index, index + checked.ndim()));
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
    problem->operation = {DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP, DR_OPAQUE, 0, DR_OPAQUE, 0};
  });
}

int dr_plan_create(const dr_problem* problem, MPI_Comm comm, dr_plan** plan) {
  return create_plan(__func__, 1, problem, false, comm, plan);
}

int dr_plan_create_joint(int count, const dr_problem* problems, MPI_Comm comm, dr_plan** plan) {
  return create_plan(__func__, count, problems, true, comm, plan);
}

int dr_plan_execute(dr_plan* plan, const void* source, void* target) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    Plan& made = plan_of(plan);
    check_mpi();
    const ArraysOfCall arrays(*plan, source, target);
    made.run(arrays.sources, arrays.targets);
  });
}

int dr_plan_start(dr_plan* plan, const void* source, void* target, int progress, dr_request** request) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    Plan& made = plan_of(plan);
    check_mpi();
    check_pointer(request, "request");
    const ArraysOfCall arrays(*plan, source, target);
    NewHandle<dr_request> started;
    made.or_fail([&] { started = make_handle(dr_request{&made}); });
    start_plan(made, arrays.sources, arrays.targets, progress);
    *request = started.release();
  });
}

int dr_request_test(dr_request* request, int* done) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    handles<dr_request>().check(request, "request");
    check_mpi();
    check_pointer(done, "done");
    *done = request->plan->test();
  });
}

int dr_request_wait(dr_request** request) {
  return guarded(DR_ERROR_EXECUTE, __func__, [&] {
    check_mpi();
    std::unique_ptr<dr_request> taken = take_handle(request, "request");
    try {
      taken->plan->wait();
    } catch (const ArgumentError&) {  // another thread is in a call with the plan: nothing has changed
      handles<dr_request>().add(taken.get());
      *request = taken.release();
      throw;
    }
  });
}

int dr_plan_set_arrays(dr_plan* plan, const int64_t* source_shape, const int64_t* source_strides,
                       const int64_t* target_shape, const int64_t* target_strides) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    Plan& made = plan_of(plan);
    if (plan->joint) throw ArgumentError("the plan moves several tensors: make another one for other arrays");
    const TensorProblem& tensor = made.problem().tensors.front();
    if (tensor.messages) throw ArgumentError("the plan is of messages: make another one for other layouts");
    made.set_arrays({local_array_of(tensor.source, made.rank(), source_shape, source_strides)},
                    {local_array_of(tensor.target, made.rank(), target_shape, target_strides)});
  });
}

int dr_plan_set_stream(dr_plan* plan, void* stream) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] { plan_of(plan).set_stream(stream); });
}

int dr_plan_free(dr_plan** plan) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(plan, "plan");
    plan_of(*plan).check_idle();
    take_handle(plan, "plan");
  });
}

int dr_memory_create(int64_t nbytes, void** memory) {
  return guarded(DR_ERROR_MEMORY, __func__, [&] {
    check_pointer(memory, "memory");
    if (nbytes < 0) throw ArgumentError(text("nbytes must be 0 or more, got ", nbytes));
    const Arena::Allocation made = Arena::allocate(nbytes, true);
    if (!made.zeros) std::memset(made.bytes, 0, static_cast<std::size_t>(nbytes));
    handles<void>().add(made.bytes);
    *memory = made.bytes;
  });
}

int dr_memory_free(void** memory) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(memory, "memory");
    handles<void>().remove(*memory, "*memory");
    Arena::free(std::exchange(*memory, nullptr));
  });
}

}  // extern "C"
