// SPDX-License-Identifier: BSD-3-Clause
#include "scalapack/call.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dace_redist::scalapack {
namespace {

/// Submatrices of fewer bytes are left to ScaLAPACK: it is as fast, without a plan.
constexpr std::int64_t default_min_bytes = 64 << 10;
/// The same where processes outside of a grid have to be told about it, in each call.
constexpr std::int64_t min_exchanged_bytes = 1 << 20;

/// Calls that ScaLAPACK carries out before a plan is made, which takes as long as some of them.
int calls_before_plan(std::int64_t nbytes) { return nbytes >= 4 << 20 ? 0 : nbytes >= 1 << 20 ? 1 : 7; }

std::int64_t min_bytes() {
  static const std::int64_t bytes = [] {
    const char* const value = std::getenv("DACE_REDIST_SCALAPACK_MIN_BYTES");
    return value && *value ? std::strtoll(value, nullptr, 10) : default_min_bytes;
  }();
  return bytes;
}

/// Calls of this process; printed at its end if DACE_REDIST_SCALAPACK_REPORT is set.
class Report {
 public:
  void add(bool is_carried_out) {
    ++calls_;
    carried_out_ += is_carried_out;
  }
  std::int64_t calls() const { return calls_; }
  std::int64_t carried_out() const { return carried_out_; }
  ~Report() {
    if (std::getenv("DACE_REDIST_SCALAPACK_REPORT") && calls_ > 0)
      std::fprintf(stderr, "dace-redist: process %d carried out %lld of %lld calls of ScaLAPACK's routines\n", getpid(),
                   static_cast<long long>(carried_out_), static_cast<long long>(calls_));
  }

 private:
  std::atomic<std::int64_t> calls_{0}, carried_out_{0};
};
Report report;

[[noreturn]] void stop(const Call& call, const char* message) {
  std::fprintf(stderr, "dace-redist: %s: %s\n", call.routine.name, message);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

/// The submatrices of a call, of all processes.
struct Sides {
  Sides(const Call& call, const Processes& processes)
      : source(call.source, processes),
        target(call.target, processes),
        source_rows(call.routine.transposes ? call.n : call.m),
        source_columns(call.routine.transposes ? call.m : call.n) {}

  bool are_valid(const Call& call) const {
    if (!call.routine.transposes && !(source.check(call.m, call.n) && target.check(call.m, call.n))) return false;
    return source.is_valid(source_rows, source_columns) && target.is_valid(call.m, call.n);
  }

  Side source, target;
  int source_rows, source_columns;
};

/// What is moved, on all processes alike.
struct Problem {
  Problem(const Call& call, const Sides& sides)
      : source(sides.source.axes(sides.source_rows, sides.source_columns)),
        target(sides.target.axes(call.m, call.n)),
        source_ranks(sides.source.ranks(source)),
        target_ranks(sides.target.ranks(target)),
        shape{sides.source_columns, sides.source_rows} {}

  Key key(const Call& call) const;
  dr::Distribution distribution(const std::vector<Axis>& axes, const dr::Extents& ranks,
                                const dr::Extents& part) const {
    return {{axes[0].offset + part[0], axes[1].offset + part[1]},
            {axes[0].parts, axes[1].parts},
            {},
            {axes[0].block, axes[1].block},
            ranks};
  }
  dr_plan* plan(const Call& call, const Entry& entry, MPI_Comm comm) const;

  std::vector<Axis> source, target;
  dr::Extents source_ranks, target_ranks, shape;  // shape: of the source
};

Key Problem::key(const Call& call) const {
  Key key{
      call.routine.element_bytes, call.routine.type, call.routine.transposes, call.routine.conjugates, call.m, call.n};
  for (const std::complex<double> number : {call.alpha, call.beta}) {
    std::int64_t bits[2];
    std::memcpy(bits, &number, sizeof bits);
    key.insert(key.end(), bits, bits + 2);
  }
  for (const auto* const axes : {&source, &target})
    for (const Axis& axis : *axes) key.insert(key.end(), {axis.parts, axis.block, axis.offset});
  for (const auto* const ranks : {&source_ranks, &target_ranks}) key.insert(key.end(), ranks->begin(), ranks->end());
  return key;
}

dr_plan* Problem::plan(const Call& call, const Entry& entry, MPI_Comm comm) const {
  const dr::Extents target_shape{call.n, call.m}, source_offset{source[0].offset, source[1].offset},
      target_offset{target[0].offset, target[1].offset}, source_strides{entry.source_lld, 1},
      target_strides{entry.target_lld, 1};
  const dr::Distribution before = distribution(source, source_ranks, shape),
                         after = distribution(target, target_ranks, target_shape);
  const int exchanged[] = {1, 0};
  dr_problem problem = dr::result_of<dr_problem>(dr_problem_init);
  problem.source = before.get();
  problem.target = after.get();
  problem.element_bytes = call.routine.element_bytes;
  problem.label = call.routine.name;
  problem.source_strides = source_strides.data();
  problem.target_strides = target_strides.data();
  problem.region_source_offset = source_offset.data();
  problem.region_target_offset = target_offset.data();
  problem.region_shape = shape.data();
  if (call.routine.transposes) problem.axes = exchanged;
  problem.operation.source_type = problem.operation.target_type = call.routine.type;
  problem.operation.conjugate = call.routine.conjugates;
  std::memcpy(problem.operation.alpha, &call.alpha, sizeof call.alpha);
  std::memcpy(problem.operation.beta, &call.beta, sizeof call.beta);
  return dr::result_of<dr_plan*>(dr_plan_create, &problem, comm);
}

/// Makes the plan, or has it take other leading dimensions.
void prepare(Entry& entry, const Call& call, const Problem& problem, const Sides& sides, MPI_Comm comm) {
  const bool fits = entry.source_lld == sides.source.lld() && entry.target_lld == sides.target.lld();
  entry.source_lld = sides.source.lld();
  entry.target_lld = sides.target.lld();
  if (!entry.plan) {
    entry.plan.reset(problem.plan(call, entry, comm));
  } else if (!fits) {
    const std::int64_t source_strides[] = {entry.source_lld, 1}, target_strides[] = {entry.target_lld, 1};
    dr::check(dr_plan_set_arrays(entry.plan.get(), nullptr, source_strides, nullptr, target_strides));
  }
}

/// Cases of p?tran that stay with ScaLAPACK: other descriptors, replicas, several contexts, a source that is not read.
bool is_ordinary(const Call& call) {
  constexpr int dense = 1;
  const int *source = call.source.descriptor, *target = call.target.descriptor;
  return source[0] == dense && target[0] == dense && source[1] == target[1] && call.alpha != 0.0;
}

bool try_call(const Call& call) {
  if (call.m <= 0 || call.n <= 0) return false;
  const std::int64_t nbytes = std::int64_t{call.m} * call.n * call.routine.element_bytes;
  if (nbytes < min_bytes() || (call.routine.transposes && !is_ordinary(call))) return false;
  Processes* const processes = processes_of(call.context, call.routine.name);
  if (!processes) return false;
  const std::lock_guard<std::mutex> locked(processes->guard);
  Sides sides(call, *processes);
  if (!sides.source.has_all_processes() || !sides.target.has_all_processes()) {
    if (nbytes < min_exchanged_bytes && min_bytes() > 0) return false;
    Side::exchange(sides.source, sides.target, processes->comm);
  }
  if (!sides.are_valid(call)) return false;
  try {
    const Problem problem(call, sides);
    Entry& entry = processes->plans.entry(problem.key(call));
    if (entry.uses++ < calls_before_plan(nbytes) && min_bytes() > 0) return false;
    prepare(entry, call, problem, sides, processes->comm);
    dr::check(dr_plan_execute(entry.plan.get(), sides.source.data(problem.source, call.routine.element_bytes),
                              sides.target.data(problem.target, call.routine.element_bytes)));
    return true;
  } catch (const std::exception& error) {
    stop(call, error.what());
  }
}

}  // namespace

bool carried_out(const Call& call) {
  const bool done = try_call(call);
  report.add(done);
  return done;
}

}  // namespace dace_redist::scalapack

/// Numbers of calls in this process: all, and those that the library has carried out.
extern "C" DR_API void dr_scalapack_calls(std::int64_t* all, std::int64_t* carried_out) {
  *all = dace_redist::scalapack::report.calls();
  *carried_out = dace_redist::scalapack::report.carried_out();
}
