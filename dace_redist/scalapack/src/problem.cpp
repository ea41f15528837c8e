// SPDX-License-Identifier: BSD-3-Clause
#include "problem.hpp"

#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <utility>

#include "triangle.hpp"

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

bool is_letter(const char* text, char letter) { return text && std::toupper(*text) == letter; }

}  // namespace

Problem::Problem(const Call& of, Part from, Part to)
    : call(of), m(of.m), n(of.n), source(std::move(from)), target(std::move(to)) {}

Key Problem::key() const {
  const Routine& routine = call.routine;
  Key key{routine.element_bytes, routine.type, routine.transposes, routine.conjugates, m, n};
  key.push_back(call.uplo ? 1 + 2 * is_letter(call.uplo, 'U') + 4 * is_letter(call.diag, 'U') : 0);
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

dr_problem Problem::problem() const {
  dr_problem problem = dr::result_of<dr_problem>(dr_problem_init);
  problem.element_bytes = call.routine.element_bytes;
  problem.label = call.routine.name;
  problem.operation.source_type = problem.operation.target_type = call.routine.type;
  problem.operation.conjugate = call.routine.conjugates;
  std::memcpy(problem.operation.alpha, &call.alpha, sizeof call.alpha);
  std::memcpy(problem.operation.beta, &call.beta, sizeof call.beta);
  return problem;
}

dr_plan* Problem::plan(MPI_Comm comm) const {
  const bool transposes = call.routine.transposes;
  const std::int64_t rows = transposes ? n : m, columns = transposes ? m : n;
  const dr::Distribution before = distribution(source, rows, columns), after = distribution(target, m, n);
  const std::int64_t source_offset[] = {source.columns.offset, source.rows.offset},
                     target_offset[] = {target.columns.offset, target.rows.offset}, shape[] = {columns, rows},
                     source_strides[] = {source.lld, 1}, target_strides[] = {target.lld, 1};
  const int exchanged[] = {1, 0};
  dr_problem described = problem();
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

dr_plan* Problem::triangle_plan(MPI_Comm comm) const {
  const Triangle triangle{m, n, is_letter(call.uplo, 'U'), is_letter(call.diag, 'U')};
  const TriangleBlocks sends(triangle, source, target), receives(triangle, target, source);
  const auto count = [](const TriangleBlocks& side) { return static_cast<std::int64_t>(side.blocks().size()); };
  const dr_problem described = problem();
  return dr::result_of<dr_plan*>(dr_plan_create_messages, &described, count(sends), sends.blocks().data(),
                                 count(receives), receives.blocks().data(), comm);
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
    entry.plan.reset(call.uplo ? triangle_plan(comm) : plan(comm));
    return true;
  } catch (const std::exception& error) {
    static std::atomic<bool> reported{false};
    if (!reported.exchange(true))
      std::fprintf(stderr, "dace-redist: %s is left to ScaLAPACK: %s\n", call.routine.name, error.what());
    return false;
  }
}

}  // namespace dace_redist::scalapack
