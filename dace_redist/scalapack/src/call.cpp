// SPDX-License-Identifier: BSD-3-Clause
#include "call.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "problem.hpp"

namespace dace_redist::scalapack {
namespace {

/// Smaller submatrices are left to ScaLAPACK, which moves them while a plan would be made.
constexpr std::int64_t default_min_bytes = 64 << 10;

/// Cases of p?tran that stay with ScaLAPACK: other descriptors, replicas, several contexts, a source that is not read.
bool is_ordinary(const Call& call) {
  constexpr int dense = 1;
  const int *source = call.source.descriptor, *target = call.target.descriptor;
  return source[0] == dense && target[0] == dense && source[1] == target[1] && call.alpha != 0.0;
}

/// Carries out a call with its own plan. \return false if it is left to ScaLAPACK.
bool execute(const Call& call, const Side& source, const Side& target, Processes& processes) {
  const bool transposes = call.routine.transposes;
  const int rows = transposes ? call.n : call.m, columns = transposes ? call.m : call.n;
  if (!transposes && !(source.check(rows, columns) && target.check(rows, columns))) return false;
  if (!source.is_valid(rows, columns) || !target.is_valid(call.m, call.n)) return false;
  if (transposes && !(source.has_valid_lld() && target.has_valid_lld())) return false;  // p?tran ends the program
  const std::int64_t element_bytes = call.routine.element_bytes;
  const Problem problem(call, source.part(rows, columns, element_bytes), target.part(call.m, call.n, element_bytes));
  Entry& entry = processes.plans.entry(problem.key());
  if (!problem.prepare(entry, processes.comm)) return false;
  dr::check(dr_plan_execute(entry.plan.get(), problem.source.data, problem.target.data));
  return true;
}

}  // namespace

bool carried_out(const Call& call) {
  if (call.m <= 0 || call.n <= 0 || (call.routine.transposes && !is_ordinary(call))) return false;
  Grid* const grid = grid_of(call.context);
  Processes* const processes = grid ? connected(*grid, call.routine.name) : nullptr;
  if (!processes) return false;
  Side source(call.source, call.context, *grid), target(call.target, call.context, *grid);
  if (!source.has_all_processes() || !target.has_all_processes()) Side::exchange(source, target, processes->comm);
  try {
    return execute(call, source, target, *processes);
  } catch (const std::exception& error) {
    stop(call.routine, error.what());
  }
}

Calls calls;

void stop(const Routine& routine, const char* message) {
  std::fprintf(stderr, "dace-redist: %s: %s\n", routine.name, message);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

Calls::Calls() : min_bytes(default_min_bytes) {
  const char* const value = std::getenv("DACE_REDIST_SCALAPACK_MIN_BYTES");
  if (value && *value) min_bytes = std::strtoll(value, nullptr, 10);
}

Calls::~Calls() {
  if (std::getenv("DACE_REDIST_SCALAPACK_REPORT") && all > 0)
    std::fprintf(stderr, "dace-redist: process %d carried out %lld of %lld calls of ScaLAPACK's routines\n", getpid(),
                 static_cast<long long>(carried_out), static_cast<long long>(all));
}

}  // namespace dace_redist::scalapack

/// Numbers of calls in this process: all, and those that the library has carried out.
extern "C" DR_API void dr_scalapack_calls(std::int64_t* all, std::int64_t* carried_out) {
  *all = dace_redist::scalapack::calls.all;
  *carried_out = dace_redist::scalapack::calls.carried_out;
}
