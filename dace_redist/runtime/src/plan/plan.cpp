// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "core/agreement.hpp"
#include "plan/backoff.hpp"
#include "plan/progress.hpp"
#include "trace/trace.hpp"
#include "transport/node_transport.hpp"

namespace dace_redist {
namespace {

/// Text of the exception that is being handled.
std::string current_message() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return *error.what() ? error.what() : "unknown error";
  } catch (...) {
    return "unknown error";
  }
}

/// Prints one line on standard error, the first time in a process: why messages within a node move over MPI.
void warn_without_node_memory(const std::string& label, const std::string& reason) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fprintf(stderr, "dace-redist: \"%s\": no node-shared memory (%s); messages within a node move over MPI\n",
               label.c_str(), reason.c_str());
}

}  // namespace

std::unique_ptr<Plan> Plan::make(MPI_Comm comm, const std::function<Problem()>& describe) {
  std::unique_ptr<Plan> plan(new Plan(Context::of(comm)));
  Context& context = *plan->context_;
  std::exception_ptr thrown;
  std::string failure, shortage = context.no_shared_memory();
  std::uint64_t hash = 0;
  const bool node_memory = shortage.empty();
  try {
    plan->number_ = context.next_plan();
    plan->problem_ = describe();
  } catch (...) {
    thrown = std::current_exception();
    failure = current_message();
  }
  const trace::Span span("plan", plan->problem_.label.c_str(), plan->problem_.strategy.c_str());
  if (!thrown) try {
      hash = agreement_hash(plan->problem_);
      check_problem(plan->problem_, context.size());
      plan->make_chains();
      plan->each_exchange([&](Exchange& exchange) {
        try {
          exchange.make(node_memory);
        } catch (const NoSharedMemory& error) {
          shortage = text("rank ", context.rank(), ": ", error.what());
        }
      });
    } catch (...) {
      thrown = std::current_exception();
      failure = current_message();
    }
  const auto rank = static_cast<std::uint64_t>(context.rank()), size = static_cast<std::uint64_t>(context.size());
  const bool short_here = node_memory && !shortage.empty();
  std::uint64_t mine[] = {thrown ? rank : size, short_here ? rank : size, hash, ~hash,
                          ~static_cast<std::uint64_t>(context.plans())};
  std::uint64_t lowest[5];
  check(MPI_Allreduce(mine, lowest, 5, MPI_UINT64_T, MPI_MIN, context.comm()), "MPI_Allreduce");
  context.set_plans(static_cast<std::int64_t>(~lowest[4]));
  if (lowest[0] < size) {
    const std::string message = broadcast_text(context.comm(), failure, static_cast<int>(lowest[0]));
    if (thrown) std::rethrow_exception(thrown);
    throw Error(text("on rank ", lowest[0], ": ", message));
  }
  if (lowest[2] != ~lowest[3]) throw_difference(context.comm(), plan->problem_);
  const bool uses_node = find_strategy(plan->problem_.strategy).on_node != nullptr;
  if (uses_node && (lowest[1] == rank || (!node_memory && rank == 0)))
    warn_without_node_memory(plan->problem_.label, shortage);
  if (lowest[1] < size)
    all_or_none(context.comm(), [&] { plan->each_exchange([](Exchange& exchange) { exchange.make(false); }); });
  plan->each_exchange([](Exchange& exchange) { exchange.connect(); });
  return plan;
}

Plan::~Plan() = default;

template <class Visit>
void Plan::each_exchange(const Visit& visit) const {
  for (const Chain& chain : chains_)
    for (const auto& exchange : chain.exchanges) visit(*exchange);
}

/// Tensors that are copied share an exchange. Partial results of each tensor have exchanges of their own: a reduction,
/// in which each target replica may get a slice only, and then the exchange of the slices among the replicas.
void Plan::make_chains() {
  std::vector<TensorProblem> copied;
  std::vector<Exchange::ArrayOfPlan> sources, targets;
  const auto add = [this](Chain& chain, std::vector<TensorProblem> tensors, ReplicaPolicy policy, auto from, auto to) {
    chain.exchanges.push_back(std::make_unique<Exchange>(*context_, number_, problem_, std::move(tensors), policy,
                                                         std::move(from), std::move(to), stream_));
  };
  using Places = std::vector<Exchange::ArrayOfPlan>;
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    TensorProblem tensor = problem_.tensors[t];
    if (!tensor.reduces()) {
      tensor.operation.reduction = Reduction::none;  // of a single partial result
      copied.push_back(std::move(tensor));
      sources.push_back({t, false});
      targets.push_back({t, true});
      continue;
    }
    const Index target_bytes = element_bytes_of(tensor.operation.target);
    const Index message_bytes = std::min(tensor.element_bytes, target_bytes);
    const Index sliced_bytes = message_bytes == target_bytes ? target_bytes : 0;
    bool scatter = reduction_exchanges(tensor.source, tensor.target, sliced_bytes).front().scatter_target;
    if (problem_.strategy == "SumReplicas" && !context_->topology().one_node()) scatter = false;  // MPI does so itself
    Chain& chain = chains_.emplace_back();
    TensorProblem slices = tensor;
    add(chain, {std::move(tensor)}, {ReplicaPolicy::all, 0, scatter}, Places{{t, false}}, Places{{t, true}});
    if (!scatter) continue;
    slices.index_map = IndexMap(slices.index_map, slices.source, slices.target).within_target();
    slices.source = slices.target;
    slices.source_memory = slices.target_memory;
    slices.source_array = slices.target_array;
    slices.operation = {};
    slices.element_bytes = target_bytes;
    add(chain, {std::move(slices)}, {ReplicaPolicy::allgather, 0, false}, Places{{t, true}}, Places{{t, true}});
  }
  if (!copied.empty()) add(chains_.emplace_back(), std::move(copied), {}, std::move(sources), std::move(targets));
  sources_.resize(problem_.tensors.size());
  targets_.resize(problem_.tensors.size());
}

void Plan::set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets) {
  std::vector<LocalArray> sources_before, targets_before;
  for (const TensorProblem& tensor : problem_.tensors) {
    sources_before.push_back(tensor.source_array);
    targets_before.push_back(tensor.target_array);
  }
  try {
    each_exchange([&](Exchange& exchange) { exchange.set_arrays(sources, targets); });
  } catch (...) {
    each_exchange([&](Exchange& exchange) { exchange.set_arrays(sources_before, targets_before); });
    throw;
  }
  for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
    problem_.tensors[t].source_array = sources[t];
    problem_.tensors[t].target_array = targets[t];
  }
}

std::string Plan::missing_array(const void* const* sources, void* const* targets) const {
  std::string missing;
  each_exchange([&](Exchange& exchange) {
    if (missing.empty()) missing = exchange.missing_array(sources, targets, problem_.tensors.size() > 1);
  });
  return missing;
}

void Plan::run(const void* const* sources, void* const* targets) {
  const trace::Span span("run", problem_.label.c_str(), problem_.strategy.c_str());
  try {
    context_->check_failures(number_);
    begin(sources, targets, Pace::attended);
    wait_until_done(false);
  } catch (...) {
    fail(current_message());
    throw;
  }
}

void Plan::start(const void* const* sources, void* const* targets) {
  const trace::Span span("start", problem_.label.c_str(), problem_.strategy.c_str());
  failure_ = nullptr;
  try {
    context_->check_failures(number_);
    Progress::instance().add(*this, [&] { begin(sources, targets, Pace::unattended); });
  } catch (...) {
    fail(current_message());
    throw;
  }
}

bool Plan::test() {
  const trace::Span span("progress");
  Progress& all = Progress::instance();
  try {
    bool any = true, done = false;
    while (any && !done) done = all.advance_until_done(*this, any);
    if (!done) {
      context_->check_failures(number_);
      return false;
    }
  } catch (...) {
    all.remove(*this);
    fail(current_message());
    throw;
  }
  all.remove(*this);
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

void Plan::wait() {
  const trace::Span span("progress");
  try {
    wait_until_done(true);
  } catch (...) {
    Progress::instance().remove(*this);
    fail(current_message());
    throw;
  }
  Progress::instance().remove(*this);
  if (failure_) std::rethrow_exception(failure_);
}

void Plan::begin(const void* const* sources, void* const* targets, Pace pace) {
  sources_.assign(sources, sources + problem_.tensors.size());
  targets_.assign(targets, targets + problem_.tensors.size());
  pace_ = pace;
  for (Chain& chain : chains_) {
    chain.at_hand = 0;
    chain.exchanges.front()->begin(sources_.data(), targets_.data(), pace);
  }
}

/// Waits until the transfer is done. One that was started is advanced with all others, under their lock.
void Plan::wait_until_done(bool started) {
  Progress& all = Progress::instance();
  Backoff backoff(static_cast<std::int64_t>(chains_.front().exchanges.front()->node_ranks()));
  for (bool any = false; started ? !all.advance_until_done(*this, any) : !done();) {
    bool looks = false;
    if (!started && backoff.sleeps() && waits_for_node()) {
      any = look_or_sleep(Arena::own().head().waiting, Backoff::nap_nanoseconds, [this] { return advance(); });
      looks = !any && backoff.slept();
    } else {
      if (!started) any = advance();
      looks = !any && backoff.wait();
    }
    if (any) backoff.reset();
    if (!looks) continue;
    context_->check_failures(number_);
    if (!started) all.advance();
    if (backoff.long_wait()) wake_partners();
  }
}

void Plan::fail(const std::string& message) noexcept {
  if (!failed_.exchange(true)) context_->report_failure(number_, message);
}

void Plan::wake_partners() {
  for (const Chain& chain : chains_)
    if (chain.at_hand < chain.exchanges.size()) chain.exchanges[chain.at_hand]->wake_partners();
}

bool Plan::waits_for_node() const {
  return std::all_of(chains_.begin(), chains_.end(), [](const Chain& chain) {
    return chain.at_hand == chain.exchanges.size() || chain.exchanges[chain.at_hand]->waits_for_node();
  });
}

/// Does what can be done now. \return whether that was anything.
bool Plan::advance() {
  bool any = false;
  for (Chain& chain : chains_) {
    if (chain.at_hand == chain.exchanges.size()) continue;
    any |= chain.exchanges[chain.at_hand]->progress();
    while (chain.at_hand < chain.exchanges.size() && chain.exchanges[chain.at_hand]->done()) {
      any = true;
      if (++chain.at_hand < chain.exchanges.size())
        chain.exchanges[chain.at_hand]->begin(sources_.data(), targets_.data(), pace_);
    }
  }
  return any;
}

bool Plan::progress() {
  if (failure_) return false;
  try {
    return advance();
  } catch (...) {
    failure_ = std::current_exception();
    fail(current_message());
    return true;
  }
}

bool Plan::progress_without_mpi() {
  if (failure_) return false;
  try {
    bool any = false;
    for (const Chain& chain : chains_)
      if (chain.at_hand < chain.exchanges.size()) any |= chain.exchanges[chain.at_hand]->progress_without_mpi();
    return any;
  } catch (...) {
    failure_ = std::current_exception();  // the thread of the program tells the other ranks
    return true;
  }
}

bool Plan::done() const {
  return failure_ || std::all_of(chains_.begin(), chains_.end(),
                                 [](const Chain& chain) { return chain.at_hand == chain.exchanges.size(); });
}

}  // namespace dace_redist
