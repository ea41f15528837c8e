// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Functions that the Fortran module calls: lists are Fortran's, in its order and with their lengths; null: absent.

#include <algorithm>
#include <iterator>
#include <vector>

#include "api/handles.hpp"
#include "dace_redist_library.hpp"

using namespace dace_redist;

namespace {

using Numbers = std::vector<std::int64_t>;

struct InFortran {
  InFortran() { in_fortran() = true; }
  ~InFortran() { in_fortran() = false; }
};

void check_length(const char* name, Index length, Index expected) {
  if (length != expected) throw ArgumentError(text(name, " must have ", expected, " entries, got ", length));
}

Numbers reversed(const std::int64_t* list, Index count) {
  return {std::make_reverse_iterator(list + count), std::make_reverse_iterator(list)};
}

/// Entries and lengths of parts, axis after axis, in the order of C. \param parts  of an axis.
template <class Parts>
Numbers reversed_block(const std::int64_t* block, Index length, Index ndim, const Parts& parts) {
  Index expected = ndim;
  for (Index i = 0; i < std::min(ndim, length); ++i) expected += block[i] == DR_BLOCK_LENGTHS ? parts(i) : 0;
  check_length("block", length, expected);
  Numbers entries = reversed(block, ndim);
  const std::int64_t* lengths = block + ndim;
  for (Index i = 0; i < ndim; ++i) {
    if (block[i] != DR_BLOCK_LENGTHS) continue;
    entries.insert(entries.begin() + ndim, lengths, lengths + parts(i));
    lengths += parts(i);
  }
  return entries;
}

}  // namespace

extern "C" {

/// \param lengths  of shape, grid, axes, block and ranks.
DR_API int dr_fortran_create_blocks(const Index lengths[5], const std::int64_t* shape, const std::int64_t* grid,
                                    const int* axes, const std::int64_t* block, const std::int64_t* ranks,
                                    dr_distribution** distribution) {
  const InFortran here;
  const Index ndim = std::min<Index>(lengths[0], INT32_MAX), grid_ndim = std::min<Index>(lengths[1], INT32_MAX);
  std::vector<int> grid_axes(static_cast<std::size_t>(ndim), DR_NOT_SPLIT);
  Numbers extents, entries;
  const int code = guarded(DR_ERROR_ARGUMENT, "dr_distribution_create_blocks", [&] {
    if (axes) check_length("axes", lengths[2], ndim);
    for (Index i = 0; i < ndim; ++i)
      if (axes || i < grid_ndim)
        grid_axes[static_cast<std::size_t>(ndim - 1 - i)] = static_cast<int>(axes ? axes[i] - Index{1} : i);
    const auto parts = [&](Index i) -> Index {
      const int axis = grid_axes[static_cast<std::size_t>(ndim - 1 - i)];
      return axis >= 0 && axis < grid_ndim ? std::clamp<Index>(grid[axis], 0, INT32_MAX) : 1;
    };
    extents = reversed(shape, ndim);
    if (block) entries = reversed_block(block, lengths[3], ndim, parts);
    if (ranks && std::all_of(grid, grid + grid_ndim, [](Index size) { return size > 0; }))
      check_length("ranks", lengths[4], checked_product({grid, grid + grid_ndim}, "process grid"));
  });
  if (code != DR_SUCCESS) return code;
  return dr_distribution_create_blocks(static_cast<int>(ndim), extents.data(), static_cast<int>(grid_ndim), grid,
                                       grid_axes.data(), block ? entries.data() : nullptr, ranks, distribution);
}

DR_API int dr_fortran_local_shape(const dr_distribution* distribution, int rank, Index length, std::int64_t* shape) {
  const InFortran here;
  return guarded(DR_ERROR_ARGUMENT, "dr_distribution_local_shape", [&] {
    handles<dr_distribution>().check(distribution, "distribution");
    const std::vector<Index> extents = distribution->checked.local_shape(rank);
    check_length("shape", length, static_cast<Index>(extents.size()));
    std::reverse_copy(extents.begin(), extents.end(), shape);
  });
}

/// \param lengths  of axes, and of both dimensions of region.
DR_API int dr_fortran_plan_create(const dr_problem* given, int comm, const Index lengths[3], const int* axes,
                                  const std::int64_t* region, dr_plan** plan) {
  const InFortran here;
  return guarded(DR_ERROR_PLAN, "dr_plan_create", [&] {
    check_mpi();
    const MPI_Comm communicator = library::communicator_of_fortran(comm);
    dr_plan* const made = make_plan(communicator, given->sends != 0, false, [&](const PlanRanks& ranks) {
      dr_problem problem = *given;
      handles<dr_distribution>().check(problem.source, "source");
      handles<dr_distribution>().check(problem.target, "target");
      const Index ndim = problem.source->checked.ndim();
      std::vector<int> order;
      if (axes) {
        check_length("axes", lengths[0], ndim);
        for (Index i = ndim; i-- > 0;) order.push_back(static_cast<int>(ndim - axes[i]));
        problem.axes = order.data();
      }
      Numbers columns[3];
      if (region) {
        check_length("the first dimension of region", lengths[1], ndim);
        check_length("the second dimension of region", lengths[2], 3);
        for (Index i = 0; i < 3; ++i) columns[static_cast<std::size_t>(i)] = reversed(region + i * ndim, ndim);
        for (Numbers* offset : {&columns[0], &columns[1]})
          for (std::int64_t& index : *offset) --index;
        problem.region_source_offset = columns[0].data();
        problem.region_target_offset = columns[1].data();
        problem.region_shape = columns[2].data();
      }
      return problem_of(1, &problem, ranks);
    });
    *plan = made;
  });
}

DR_API int dr_fortran_load(const dr_file* file, const dr_distribution* target, int comm, void* array) {
  const InFortran here;
  return dr_load(file, target, mpi_runs() ? library::communicator_of_fortran(comm) : MPI_COMM_NULL, array);
}

DR_API int dr_fortran_save(const dr_file* file, const dr_distribution* source, int comm, const void* array) {
  const InFortran here;
  return dr_save(file, source, mpi_runs() ? library::communicator_of_fortran(comm) : MPI_COMM_NULL, array);
}

}  // extern "C"
