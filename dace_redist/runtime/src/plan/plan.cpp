// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.hpp"

#include <time.h>

#include <set>
#include <utility>

#include "core/agreement.hpp"
#include "core/stay.hpp"
#include "trace/trace.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

void warn_without_node_memory(const std::string& label, const std::string& reason) {
  static std::atomic<bool> warned{false};
  warn_once(warned, "dace-redist: \"%s\": no node-shared memory (%s); messages within a node move over MPI\n",
            label.c_str(), reason.c_str());
}

/// What each rank says of a plan that it has prepared. All learn the lowest of each number.
struct Votes {
  std::uint64_t failed, short_of_memory;  // this rank, if it is so; else the number of ranks
  std::uint64_t hash, inverse_hash;       // of what must be equal on all ranks
  std::uint64_t inverse_plans;            // so far
  std::uint64_t has_few_short;            // messages: 0 or 1
};

}  // namespace

void PlanDeleter::operator()(Plan* plan) const {
  if (plan->process_ != getpid()) return;
  const MpiTurn turn;
  if (plan->thread_.joinable()) {
    plan->thread_.join();
    plan->state_ = Plan::State::idle;
  }
  const auto at_rest = [](const auto& exchange) { return exchange->at_rest(); };
  const std::vector<std::unique_ptr<Exchange>>& exchanges = plan->exchanges_;
  const bool unused = !plan->failed_ || (plan->left_ && std::all_of(exchanges.begin(), exchanges.end(), at_rest));
  if (unused && plan->state_ == Plan::State::idle) delete plan;
}

PlanPointer Plan::make(MPI_Comm comm, const std::function<Problem()>& describe) {
  const MpiTurn turn;
  const std::shared_ptr<Context> shared = Context::of(comm);
  Context& context = *shared;
  context.renew_tags();
  const bool node_memory = context.no_shared_memory().empty();
  PlanPointer plan;
  std::string facts, shortage;
  const std::exception_ptr thrown = caught([&] {
    plan.reset(new Plan(comm, shared));
    plan->prepare(describe, facts, shortage);
  });
  const std::uint64_t hash = std::hash<std::string>()(facts);
  const auto rank = static_cast<std::uint64_t>(context.rank()), size = static_cast<std::uint64_t>(context.size());
  const auto rank_if = [&](bool condition) { return condition ? rank : size; };
  const Votes mine{rank_if(thrown != nullptr),
                   rank_if(node_memory && !shortage.empty()),
                   hash,
                   ~hash,
                   ~static_cast<std::uint64_t>(context.plans()),
                   plan && plan->has_many_short() ? 0u : 1u};
  Votes lowest;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&mine, &lowest, sizeof lowest / sizeof hash, MPI_UINT64_T, MPI_MIN, context.comm(), &request),
        "MPI_Iallreduce");
  complete(request, context.size(),
           context.operation("a plan", plan ? plan->problem_.label.c_str() : "", context.plans()));
  context.set_plans(static_cast<std::int64_t>(~lowest.inverse_plans));
  if (lowest.failed < size) throw_everywhere(context.comm(), thrown, static_cast<int>(lowest.failed));
  if (lowest.hash != ~lowest.inverse_hash) throw_difference(context.comm(), facts);
  const bool uses_node = find_strategy(plan->problem_.strategy).on_node != nullptr;
  if (uses_node && (lowest.short_of_memory == rank || (!node_memory && rank == 0)))
    warn_without_node_memory(plan->problem_.label, shortage);
  const bool on_node = node_memory && lowest.short_of_memory == size, joins_short = lowest.has_few_short == 0;
  const auto make_again = [&](bool with_node_memory) {
    bool suffices = true;
    all_or_none(context.comm(), [&] { suffices = plan->make_transports(with_node_memory, joins_short, shortage); });
    const int short_rank = lowest_rank(context.comm(), !suffices);
    if (short_rank == context.rank()) warn_without_node_memory(plan->problem_.label, shortage);
    return short_rank < 0;
  };
  if ((on_node != node_memory || joins_short) && !make_again(on_node)) make_again(false);
  plan->connect();
  return plan;
}

/// The part of making a plan that is local.
/// \param facts     set to what must be equal on all ranks.
/// \param shortage  set to the reason why node-shared memory is not used, if there is one.
void Plan::prepare(const std::function<Problem()>& describe, std::string& facts, std::string& shortage) {
  number_ = context_->next_plan();
  shortage = context_->no_shared_memory();
  const bool node_memory = shortage.empty();
  problem_ = describe();
  operation_ = context_->operation("a transfer", problem_.label.c_str(), number_);
  const trace::Span span("plan", problem_.label.c_str(), problem_.strategy.c_str());
  facts = agreed_facts(problem_);
  check_problem(problem_, context_->size());
  node_memory_ = node_memory;
  make_exchanges();
  make_transports(node_memory, false, shortage);
}

/// \return whether there is enough node-shared memory; if not, `shortage` says why.
bool Plan::make_transports(bool node_memory, bool joins_short, std::string& shortage) {
  bool suffices = true;
  if (std::exchange(node_memory_, node_memory) != node_memory) {  // reductions have other steps without
    exchanges_.clear();
    make_exchanges();
  }
  for (const auto& exchange : exchanges_) try {
      exchange->make(node_memory, joins_short);
    } catch (const NoSharedMemory& error) {
      shortage = text("rank ", rank(), ": ", error.what());
      suffices = false;
    }
  return suffices;
}

/// A rank that fails tells the others, which may have made their plans, and takes part in what is collective. It keeps
/// its plan, which partners may use.
void Plan::connect() {
  for (const auto& exchange : exchanges_)
    for (const Route& route : exchange->routes()) {
      const std::exception_ptr thrown = caught([&] { route.transport->connect(); });
      if (!thrown || failure_) continue;
      failure_ = thrown;
      report(message_of(thrown));
    }
  if (failure_) std::rethrow_exception(failure_);
}

bool Plan::is_on(MPI_Comm comm) const {
  const MpiTurn turn;
  return comm == comm_ && (comm == MPI_COMM_WORLD || Context::of(comm) == context_);
}

/// Has this thread use the plan alone. \throws Error if it failed; ArgumentError unless it is in the expected state.
void Plan::enter(State expected) {
  if (failed_ && expected == State::idle)
    throw Error(text("\"", problem_.label, "\" failed before; free it and make another plan"));
  State found = expected;
  if (state_.compare_exchange_strong(found, State::busy)) return;
  if (found == State::idle) throw ArgumentError("no transfer is under way: it was waited for, or not started");
  throw ArgumentError(text("a transfer of \"", problem_.label, "\" is under way",
                           found == State::busy ? " in another thread" : "", ": wait for it first"));
}

/// Runs `work` while no other thread uses the plan.
template <class Work>
void Plan::use(State before, State after, State after_error, const Work& work) {
  const MpiTurn turn;
  enter(before);
  const std::exception_ptr thrown = caught(work);
  state_ = thrown ? after_error : after;
  if (thrown) std::rethrow_exception(thrown);
}

void Plan::check_idle() const {
  if (state_ != State::idle) throw ArgumentError("a transfer of the plan is under way: wait for it first");
}

void Plan::set_stream(Stream stream) {
  use(State::idle, State::idle, State::idle, [&] { stream_ = stream; });
}

void Plan::set_arrays(const std::vector<LocalArray>& sources, const std::vector<LocalArray>& targets) {
  use(State::idle, State::idle, State::idle, [&] {
    for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
      const TensorProblem& tensor = problem_.tensors[t];  // throws if an array does not fit:
      local_layout(tensor.source, sources[t], tensor.element_bytes, rank(), "source");
      local_layout(tensor.target, targets[t], tensor.element_bytes, rank(), "target");
    }
    or_fail([&] {
      for (std::size_t t = 0; t < problem_.tensors.size(); ++t) {
        problem_.tensors[t].source_array = sources[t];
        problem_.tensors[t].target_array = targets[t];
      }
      for (const auto& exchange : exchanges_) exchange->replan();
    });
  });
}

void Plan::end(const std::exception_ptr& thrown) {
  Progress::instance().remove(*this);  // other threads look at the failures of what is under way
  failure_ = thrown;
  fail(message_of(failure_));
  if (leave_in_time()) std::rethrow_exception(thrown);
  throw Error(text(message_of(thrown), "; other ranks may still use the arrays of \"", problem_.label,
                   "\": keep these until MPI is finalized"));
}

/// Leaves a transfer that failed, as far as can be done now. \return whether the arrays are the program's again.
bool Plan::leave() {
  if (left_) return true;
  context_->failure_of(number_);  // takes note of ranks that have left
  Leaving all = Leaving::left;
  for (const auto& exchange : exchanges_) all = std::min(all, exchange->leave());
  if (all != Leaving::receiving && std::exchange(tells_, false)) {
    std::set<int> peers;
    for (const auto& exchange : exchanges_) exchange->add_peers(peers);
    context_->report_leaving(number_, {peers.begin(), peers.end()});
  }
  return left_ = all == Leaving::left;
}

/// \return whether the arrays are the program's again within some seconds.
bool Plan::leave_in_time() noexcept {
  constexpr double max_seconds = 10;  // in which a partner that is late, or any message, arrives
  bool left = false;
  caught([&] {
    const double end = Stay::now() + max_seconds;
    Backoff backoff = this->backoff();
    while (!(left = leave()) && Stay::now() < end) {
      Progress::instance().advance();
      if (!backoff.wait()) continue;
      for (const auto& exchange : exchanges_) exchange->wake_partners();
    }
  });
  return left;
}

/// Whether to look for failures of other ranks ahead of a transfer: once per tick of a coarse clock, a few
/// milliseconds, as a look takes 1 to 2 us. Ranks that wait look as well.
bool Plan::look_is_due() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const std::int64_t tick = now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
  return std::exchange(looked_, tick) != tick;
}

void Plan::take_arrays(const void* const* sources, void* const* targets) {
  for (const auto& exchange : exchanges_) {
    const std::string missing = exchange->set_arrays(sources, targets);
    if (missing.empty()) continue;
    const std::string message = text(missing, " is null, but elements of this rank's array are to be moved");
    fail(message);
    throw ArgumentError(message);
  }
}

void Plan::run(const void* const* sources, void* const* targets) {
  use(State::idle, State::idle, State::idle, [&] {
    take_arrays(sources, targets);
    run_to_end();
  });
}

void Plan::run_to_end() {
  const trace::Span span("run", problem_.label.c_str(), problem_.strategy.c_str());
  or_fail([&] {
    begin(Pace::attended);
    wait_alone();
  });
}

void Plan::start(const void* const* sources, void* const* targets) {
  use(State::idle, State::started, State::idle, [&] {
    take_arrays(sources, targets);
    const trace::Span span("start", problem_.label.c_str(), problem_.strategy.c_str());
    or_fail([&] {
      bool is_posted = true;
      Progress::instance().add(*this, [&] {
        begin(Pace::unattended);
        is_posted = posted();
      });
      if (!is_posted) advance_until(&Progress::Round::posted);
    });
  });
}

void Plan::start_thread(const void* const* sources, void* const* targets, const std::function<void()>& finish) {
  use(State::idle, State::started, State::idle, [&] {
    take_arrays(sources, targets);
    if (thread_level() < MPI_THREAD_MULTIPLE)
      throw ArgumentError("progress by a thread needs MPI_Init_thread with MPI_THREAD_MULTIPLE; use progress by calls");
    thread_ended_ = false;
    or_fail([&] {
      thread_ = std::thread([this, finish]() noexcept {
        failure_ = caught([&] {
          run_to_end();
          finish();
        });
        thread_ended_.store(true, std::memory_order_release);
      });
    });
  });
}

bool Plan::test() {
  bool is_done = false;
  use(State::started, State::started, State::started, [&] {
    if (thread_.joinable()) {
      is_done = thread_ended_.load(std::memory_order_acquire);
      return;
    }
    const trace::Span span("progress");
    or_fail([&] {
      Progress::Round round;
      do round = Progress::instance().advance(this);
      while (round.any && !round.done);
      is_done = round.done;
      if (!is_done) {
        backoff().wait();
        return context_->check_failures(number_);
      }
      if (failure_) std::rethrow_exception(failure_);
      Progress::instance().remove(*this);
    });
  });
  return is_done;
}

void Plan::wait(std::optional<Stream> stream) {
  use(State::started, State::idle, State::idle, [&] {
    if (thread_.joinable())
      thread_.join();
    else if (stream)
      Progress::instance().hold([&] { stream_ = *stream; });
    const trace::Span span("progress");
    or_fail([&] {
      advance_until(&Progress::Round::done);
      if (failure_) std::rethrow_exception(failure_);
      Progress::instance().remove(*this);
    });
  });
}

void Plan::begin(Pace pace) {
  if (look_is_due()) context_->check_failures(number_);
  failure_ = nullptr;
  for (const auto& exchange : exchanges_)
    if (!exchange->follows()) exchange->begin(pace);
}

/// What a rank does now and then while it waits.
void Plan::look_around(const Backoff& backoff) {
  context_->check_failures(number_);
  if (!backoff.long_wait()) return;
  for (const auto& exchange : exchanges_) exchange->wake_partners();
}

/// Waits until a transfer is done that no other thread knows of.
void Plan::wait_alone() {
  constexpr int look_interval = 256;
  int busy_rounds = 0;
  Backoff backoff = this->backoff();
  const auto for_node = [](const auto& exchange) { return exchange->waits_for_node(); };
  for (bool is_done = false; !is_done;) {
    const bool sleeps = backoff.sleeps() && std::all_of(exchanges_.begin(), exchanges_.end(), for_node);
    const bool any = sleeps ? look_or_sleep(
                                  Arena::own().head().waiting, Backoff::nap_nanoseconds, [this] { return progress(); },
                                  awaited_rings())
                            : progress();
    is_done = done();
    if (any) {
      backoff.reset();
      if (++busy_rounds % look_interval == 0) context_->check_failures(number_);
    } else if (!is_done && (sleeps ? backoff.slept() : backoff.wait())) {
      Progress::instance().advance();
      look_around(backoff);
    }
  }
  if (failure_) std::rethrow_exception(failure_);
}

/// Advances all transfers that were started, under their lock, until this one is so far.
void Plan::advance_until(bool Progress::Round::*so_far) {
  Backoff backoff = this->backoff();
  for (Progress::Round round; !(round.*so_far);) {
    round = Progress::instance().advance(this);
    if (round.any)
      backoff.reset();
    else if (!(round.*so_far) && backoff.wait())
      look_around(backoff);
  }
}

void Plan::report(const std::string& message) noexcept {
  const MpiTurn turn;
  if (!failed_.exchange(true)) context_->report_failure(number_, message);
}

void Plan::fail(const std::string& message) noexcept {
  const MpiTurn turn;
  report(message);
  caught([&] { leave(); });
}

bool Plan::progress(bool with_mpi) {
  if (failure_) {
    if (with_mpi) fail(message_of(failure_));
    return false;
  }
  bool any = false;
  const std::exception_ptr thrown = caught([&] {
    for (const auto& exchange : exchanges_) any |= exchange->progress(with_mpi);
  });
  if (!thrown) return any;
  failure_ = thrown;
  if (with_mpi) fail(message_of(thrown));
  return true;
}

}  // namespace dace_redist
