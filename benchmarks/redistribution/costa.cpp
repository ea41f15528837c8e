// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// COSTA's redistribution of a matrix of doubles, for peers.py.

#include <mpi.h>

#include <costa/grid2grid/transform.hpp>
#include <costa/layout.hpp>

using Layout = costa::grid_layout<double>;

/// \param row_begins, column_begins  of the blocks, and the end of the last one.
/// \param owners  [rows, columns]
/// \param blocks  [count] of this rank, with rows that are contiguous.
extern "C" Layout* costa_layout(int rows, int columns, const int* row_begins, const int* column_begins,
                                const int* owners, int count, const costa::block_t* blocks) {
  return new Layout(costa::custom_layout<double>(rows, columns, row_begins, column_begins, owners, count, blocks, 'R'));
}

extern "C" void costa_run(Layout* source, Layout* target, int comm) {
  costa::transform<double>(*source, *target, MPI_Comm_f2c(comm));
}

extern "C" void costa_free(Layout* layout) { delete layout; }
