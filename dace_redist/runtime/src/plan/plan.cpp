// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/agreement.hpp"
#include "plan/progress.hpp"
#include "trace/trace.hpp"
#include "transport/node_transport.hpp"

namespace dace_redist {
namespace {

/// Prints one line on standard error, the first time in a process: why messages within a node move over MPI.
void warn_without_node_memory(const std::string& label, const std::string& reason) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fprintf(stderr, "dace-redist: \"%s\": no node-shared memory (%s); messages within a node move over MPI\n",
               label.c_str(), reason.c_str());
}

}  // namespace

std::unique_ptr<Plan> Plan::make(MPI_Comm comm, const std::function<Problem()>& describe) {
  std::unique_ptr<Plan> plan(new Plan(comm, Context::of(comm)));
  Context& context = *plan->context_;
  std::string shortage = context.no_shared_memory();
  std::uint64_t hash = 0;
  const bool node_memory = shortage.empty();
  plan->number_ = context.next_plan();
  std::exception_ptr thrown = caught([&] { plan->problem_ = describe(); });
  const trace::Span span("plan", plan->problem_.label.c_str(), plan->problem_.strategy.c_str());
  if (!thrown)
    thrown = caught([&] {
      hash = agreement_hash(plan->problem_);
      check_problem(plan->problem_, context.size());
      plan->make_exchanges();
      for (const auto& exchange : plan->exchanges_) try {
          exchange->make(node_memory);
        } catch (const NoSharedMemory& error) {
          shortage = text("rank ", context.rank(), ": ", error.what());
        }
    });
  const auto rank = static_cast<std::uint64_t>(context.rank()), size = static_cast<std::uint64_t>(context.size());
  const bool short_here = node_memory && !shortage.empty();
  std::uint64_t mine[] = {thrown ? rank : size, short_here ? rank : size, hash, ~hash,
                          ~static_cast<std::uint64_t>(context.plans())};
  std::uint64_t lowest[5];
  check(MPI_Allreduce(mine, lowest, 5, MPI_UINT64_T, MPI_MIN, context.comm()), "MPI_Allreduce");
  context.set_plans(static_cast<std::int64_t>(~lowest[4]));
  if (lowest[0] < size) {
    const std::string failure = thrown ? message_of(thrown) : "";
    const std::string message = broadcast_text(context.comm(), failure, static_cast<int>(lowest[0]));
    if (thrown) std::rethrow_exception(thrown);
    throw Error(text("on rank ", lowest[0], ": ", message));
  }
  if (lowest[2] != ~lowest[3]) throw_difference(context.comm(), plan->problem_);
  const bool uses_node = find_strategy(plan->problem_.strategy).on_node != nullptr;
  if (uses_node && (lowest[1] == rank || (!node_memory && rank == 0)))
    warn_without_node_memory(plan->problem_.label, shortage);
  if (lowest[1] < size)
    all_or_none(context.comm(), [&] {
      for (const auto& exchange : plan->exchanges_) exchange->make(false);
    });
  for (const auto& exchange : plan->exchanges_) exchange->connect();
  return plan;
}

Plan::~Plan() = default;

bool Plan::is_on(MPI_Comm comm) const {
  return comm == comm_ && (comm == MPI_COMM_WORLD || Context::of(comm) == context_);
}

void Plan::add_exchange(std::vector<TensorProblem> tensors, std::vector<std::size_t> numbers, ReplicaPolicy policy) {
  exchanges_.push_back(std::make_unique<Exchange>(*context_, number_, problem_, std::move(tensors), std::move(numbers),
                                                  policy, stream_));
}

/// Tensors that are copied share an exchange. Partial results of each tensor have exchanges of their own.
void Plan::make_exchanges() {
  std::vector<TensorProblem> copied;
  std::vector<std::size_t> numbers;
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    if (problem_.tensors[t].reduces()) {
      add_reduction(t);
      continue;
    }
    copied.push_back(problem_.tensors[t]);
    copied.back().operation.reduction = Reduction::none;  // of a single partial result
    numbers.push_back(t);
  }
  if (!copied.empty()) add_exchange(std::move(copied), std::move(numbers), {});
  transfer_ = {std::vector<const void*>(problem_.tensors.size()), std::vector<void*>(problem_.tensors.size())};
}

/// A reduction, in which each target replica may get a slice only, and then the exchange of the slices among the
/// replicas.
void Plan::add_reduction(std::size_t number) {
  const TensorProblem& tensor = problem_.tensors[number];
  const Index target_bytes = element_bytes_of(tensor.operation.target);
  const Index sliced_bytes = target_bytes <= tensor.element_bytes ? target_bytes : 0;
  const bool mpi_scatters = find_strategy(problem_.strategy).sums && !context_->topology().one_node();
  const bool scatter =
      !mpi_scatters && reduction_exchanges(tensor.source, tensor.target, sliced_bytes).front().scatter_target;
  add_exchange({tensor}, {number}, {ReplicaPolicy::all, 0, scatter});
  if (!scatter) return;
  TensorProblem slices{tensor.target, tensor.target, target_bytes};
  slices.index_map = IndexMap(tensor.index_map, tensor.source, tensor.target).within_target();
  slices.source_memory = slices.target_memory = tensor.target_memory;
  slices.source_array = slices.target_array = tensor.target_array;
  Exchange& reduction = *exchanges_.back();
  add_exchange({slices}, {number}, {ReplicaPolicy::allgather, 0, false});
  reduction.set_next(exchanges_.back().get());
}

void Plan::set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets) {
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    local_layout(problem_.tensors[t].source, sources[t], rank(), "source");  // throws if an array does not fit
    local_layout(problem_.tensors[t].target, targets[t], rank(), "target");
  }
  or_fail([&] {
    for (const auto& exchange : exchanges_) exchange->set_arrays(sources, targets);
  });
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    problem_.tensors[t].source_array = sources[t];
    problem_.tensors[t].target_array = targets[t];
  }
}

std::string Plan::missing_array(const void* const* sources, void* const* targets) const {
  std::string missing;
  for (const auto& exchange : exchanges_)
    if (missing.empty()) missing = exchange->missing_array(sources, targets);
  return missing;
}

/// Runs `work` of a transfer. The other ranks learn what it throws.
template <class Work>
void Plan::or_fail(const Work& work) {
  try {
    work();
  } catch (...) {
    Progress::instance().remove(*this);
    fail(message_of(std::current_exception()));
    throw;
  }
}

void Plan::run(const void* const* sources, void* const* targets) {
  const trace::Span span("run", problem_.label.c_str(), problem_.strategy.c_str());
  or_fail([&] {
    context_->check_failures(number_);
    begin(sources, targets, Pace::attended);
    wait_until_done(false);
  });
}

void Plan::start(const void* const* sources, void* const* targets) {
  const trace::Span span("start", problem_.label.c_str(), problem_.strategy.c_str());
  or_fail([&] {
    context_->check_failures(number_);
    Progress::instance().add(*this, [&] { begin(sources, targets, Pace::unattended); });
  });
}

bool Plan::test() {
  const trace::Span span("progress");
  Progress::Round round;
  or_fail([&] {
    do round = Progress::instance().advance(this);
    while (round.any && !round.done);
    if (!round.done) return context_->check_failures(number_);
    if (failure_) std::rethrow_exception(failure_);
    Progress::instance().remove(*this);
  });
  return round.done;
}

void Plan::wait() {
  const trace::Span span("progress");
  or_fail([&] {
    wait_until_done(true);
    Progress::instance().remove(*this);
  });
}

void Plan::begin(const void* const* sources, void* const* targets, Pace pace) {
  failure_ = nullptr;
  transfer_.sources.assign(sources, sources + problem_.tensors.size());
  transfer_.targets.assign(targets, targets + problem_.tensors.size());
  transfer_.pace = pace;
  const Exchange* follows = nullptr;
  for (const auto& exchange : exchanges_) {
    if (exchange.get() != follows) exchange->begin(transfer_);
    follows = exchange->next();
  }
}

/// Waits until the transfer is done. One that was started is advanced with all others, under their lock.
void Plan::wait_until_done(bool started) {
  Progress& all = Progress::instance();
  Backoff backoff(exchanges_.front()->node_ranks());
  for (Progress::Round round; !round.done;) {
    round = started ? all.advance(this) : Progress::Round{progress(), done()};
    if (round.any) {
      backoff.reset();
    } else if (!round.done && backoff.wait()) {
      context_->check_failures(number_);
      if (!started) all.advance();
      if (!backoff.long_wait()) continue;
      for (const auto& exchange : exchanges_) exchange->wake_partners();
    }
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Plan::fail(const std::string& message) noexcept {
  if (!failed_.exchange(true)) context_->report_failure(number_, message);
}

bool Plan::progress(bool with_mpi) {
  if (failure_) return false;
  bool any = false;
  failure_ = caught([&] {
    for (const auto& exchange : exchanges_) any |= exchange->progress(with_mpi);
  });
  if (failure_ && with_mpi) fail(message_of(failure_));  // else the wait of the transfer does so
  return any || failure_;
}

bool Plan::done() const {
  return failure_ ||
         std::all_of(exchanges_.begin(), exchanges_.end(), [](const auto& exchange) { return exchange->done(); });
}

}  // namespace dace_redist
