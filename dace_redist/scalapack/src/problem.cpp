// SPDX-License-Identifier: BSD-3-Clause
#include "problem.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

namespace dace_redist::scalapack {
namespace {

/// The transposed matrix, as far as the submatrix goes.
dr::Distribution distribution(const Part& part, std::int64_t rows, std::int64_t columns) {
  return {{part.columns.offset + columns, part.rows.offset + rows},
          {part.columns.parts, part.rows.parts},
          {},
          {part.columns.block, part.rows.block},
          part.ranks};
}

}  // namespace

Problem::Problem(const Call& of, Part from, Part to)
    : call(of), m(of.m), n(of.n), source(std::move(from)), target(std::move(to)) {}

Key Problem::key() const {
  const Routine& routine = call.routine;
  Key key{routine.element_bytes, routine.type, routine.transposes, routine.conjugates, m, n};
  for (const std::complex<double> number : {call.alpha, call.beta}) {
    std::int64_t bits[2];
    std::memcpy(bits, &number, sizeof bits);
    key.insert(key.end(), bits, bits + 2);
  }
  for (const Part* const part : {&source, &target}) {
    for (const Axis& axis : {part->columns, part->rows}) key.insert(key.end(), {axis.parts, axis.block, axis.offset});
    key.insert(key.end(), part->ranks.begin(), part->ranks.end());
  }
  return key;
}

dr_plan* Problem::plan(MPI_Comm comm) const {
  const bool transposes = call.routine.transposes;
  const std::int64_t rows = transposes ? n : m, columns = transposes ? m : n;
  const dr::Distribution before = distribution(source, rows, columns), after = distribution(target, m, n);
  const std::int64_t source_offset[] = {source.columns.offset, source.rows.offset},
                     target_offset[] = {target.columns.offset, target.rows.offset}, shape[] = {columns, rows},
                     source_strides[] = {source.lld, 1}, target_strides[] = {target.lld, 1};
  const int exchanged[] = {1, 0};
  dr_problem described = dr::result_of<dr_problem>(dr_problem_init);
  described.element_bytes = call.routine.element_bytes;
  described.label = call.routine.name;
  described.operation.source_type = described.operation.target_type = call.routine.type;
  described.operation.conjugate = call.routine.conjugates;
  std::memcpy(described.operation.alpha, &call.alpha, sizeof call.alpha);
  std::memcpy(described.operation.beta, &call.beta, sizeof call.beta);
  described.source = before.get();
  described.target = after.get();
  described.source_strides = source_strides;
  described.target_strides = target_strides;
  described.region_source_offset = source_offset;
  described.region_target_offset = target_offset;
  described.region_shape = shape;
  described.axes = transposes ? exchanged : nullptr;
  return dr::result_of<dr_plan*>(dr_plan_create, &described, comm);
}

bool Problem::prepare(Entry& entry, MPI_Comm comm) const {
  const bool fits = entry.source_lld == source.lld && entry.target_lld == target.lld;
  entry.source_lld = source.lld;
  entry.target_lld = target.lld;
  if (entry.plan) {
    const std::int64_t source_strides[] = {source.lld, 1}, target_strides[] = {target.lld, 1};
    if (!fits) dr::check(dr_plan_set_arrays(entry.plan.get(), nullptr, source_strides, nullptr, target_strides));
    return true;
  }
  try {
    entry.plan.reset(plan(comm));
    return true;
  } catch (const std::exception& error) {
    static std::atomic<bool> reported{false};
    if (!reported.exchange(true))
      std::fprintf(stderr, "dace-redist: %s is left to ScaLAPACK: %s\n", call.routine.name, error.what());
    return false;
  }
}

}  // namespace dace_redist::scalapack
