// Random redistributions of one or several tensors. "all": by every strategy, with the arrays of two layouts, without a
// fault. SEED: by some strategy, with a fault on one rank, at a random allocation, call of MPI or copy, or a null
// array: each rank gets an error or the right tensor, no rank waits for ever, and the next plan works. As soon as a
// call returns, its rank uses the memory of the arrays for other things, which nobody changes. table: by every
// strategy, on one node and on two, with a fault at every stage of the first, a middle and the last rank (every
// STRIDEth of these): then every rank gets an error. allocations: as SEED, by every strategy, at every STRIDEth
// allocation of the first and the last rank. threads: by two threads under MPI_THREAD_SERIALIZED, which are never in
// MPI together.
//
// Usage: mpiexec -n RANKS mpi_random FOLDER CASES all|table STRIDE|allocations STRIDE|threads|SEED [first case], with
// the folder's files of tests/case_files.py
//
// Linked with toy_transport.cpp, whose strategy is one of all.

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "case_file.hpp"
#include "dace_redist.h"
#include "fault_points.hpp"
#include "mpi_leaks.hpp"
#include "plan/strategies.hpp"
#include "random.hpp"
#include "transport/context.hpp"

namespace {

using namespace dace_redist;

std::atomic<int> delay{0};  // microseconds after each step in which something was copied, so that ranks get out of step

/// Fails after a step in which something was copied, as copies on devices may.
class FailingTransport final : public Transport {
 public:
  explicit FailingTransport(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  void connect() override {
    transport_->connect();
    if (strikes(connecting, "connect")) throw Error("a transport is not connected");
  }
  void replan(Messages messages) override { transport_->replan(std::move(messages)); }
  void begin(const Arrays& arrays, Pace pace) override {
    transport_->begin(arrays, pace);
    if (strikes(beginning, "begin")) throw Error("a copy fails");
  }
  bool progress() override {
    const bool any = transport_->progress();
    if (any && delay > 0) usleep(static_cast<useconds_t>(delay));
    if (any && strikes(copy_step, "progress")) throw Error("a copy fails");
    return any;
  }
  bool done() const override { return transport_->done(); }
  Leaving leave() override { return transport_->leave(); }
  bool at_rest() const override { return transport_->at_rest(); }
  bool runs_without_mpi() const override { return transport_->runs_without_mpi(); }
  bool posted() const override { return transport_->posted(); }
  std::uint32_t awaited_rings() const override { return transport_->awaited_rings(); }
  void wake_partners() override { transport_->wake_partners(); }

 private:
  std::unique_ptr<Transport> transport_;
};

constexpr std::array<const char*, 6> strategies{"Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Hierarchical"};

template <std::size_t>
MakeTransport original = nullptr;

template <std::size_t N>
std::unique_ptr<Transport> make_failing(const Link& link, Messages messages) {
  if (strikes(making, "make")) throw Error("a transport is not made");
  return std::make_unique<FailingTransport>(original<N>(link, std::move(messages)));
}

template <std::size_t N>
MakeTransport failing(MakeTransport make) {
  original<N> = make;
  return make ? make_failing<N> : nullptr;
}

/// Lets the transports of all strategies fail.
template <std::size_t... N>
void replace_strategies(std::index_sequence<N...>) {
  const auto replace = [](Strategy row, auto number) {
    constexpr std::size_t first = 3 * decltype(number)::value;
    row.on_node = failing<first>(row.on_node);
    row.between_nodes = failing<first + 1>(row.between_nodes);
    row.short_between_nodes = failing<first + 2>(row.short_between_nodes);
    add_strategy(row);
  };
  (replace(find_strategy(strategies[N]), std::integral_constant<std::size_t, N>()), ...);
}

/// Ends the program when a rank waits too long.
class Watchdog {
 public:
  static constexpr unsigned max_seconds = 60;

  static void install() {
    signal(SIGALRM, [](int) {
      for (const char* part : std::initializer_list<const char*>{text_, "at ", where.load(), "\n"})
        static_cast<void>(!write(2, part, std::strlen(part)));
      void* frames[64];
      backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
      sleep(3);  // the other ranks print theirs
      _exit(1);
    });
    void* frames[1];
    backtrace(frames, 1);  // loads what it needs
  }
  static void begin(const std::string& stage) {
    std::snprintf(text_, sizeof text_, "hang: %s\n", stage.c_str());
    alarm(max_seconds);
  }
  static void end() { alarm(0); }

 private:
  static inline char text_[2000];
};

/// How a transfer is carried out.
enum Mode { execute, wait, test, thread, modes };
constexpr const char* mode_names[modes] = {"execute", "start and wait", "start and test", "thread"};

/// A redistribution by the C interface.
class Redistribution {
 public:
  Redistribution(const Case& the, const char* strategy) : moves_(the.moves), nulls_(the.moves.size()) {
    for (Move& move : moves_) add(move, the.options, strategy);
  }

  int create(MPI_Comm comm) {
    const Scope library(true);
    return dr_plan_create_joint(static_cast<int>(problems_.size()), problems_.data(), comm, &plan_);
  }

  /// Takes the arrays of another layout from now on.
  void use_layout(std::size_t layout) {
    std::vector<LocalArray> source_arrays, target_arrays;
    layout_ = layout;
    for (std::size_t t = 0; t < moves_.size(); ++t) {
      ArrayMemory &source = moves_[t].layouts[layout].source, &target = moves_[t].layouts[layout].target;
      sources_[t] = source.data();
      targets_[t] = target.data();
      source_arrays.push_back(source.local_array());
      target_arrays.push_back(target.local_array());
    }
    plan_->plan->set_arrays(source_arrays, target_arrays);
  }

  int move(Mode mode) {
    for (Move& move : moves_) {
      move.layouts[layout_].source.reset();
      move.layouts[layout_].target.reset();
    }
    const Scope library(true);
    const void* const* const sources = strikes(null_array, "arrays") ? nulls_.data() : sources_.data();
    if (mode == execute) return dr_plan_execute(plan_, sources, targets_.data());
    dr_request* request = nullptr;
    int code = dr_plan_start(plan_, sources, targets_.data(), mode == thread ? DR_PROGRESS_THREAD : DR_PROGRESS_CALLS,
                             &request);
    if (code != DR_SUCCESS) return code;
    for (int done = 0; mode == test && !done && code == DR_SUCCESS;) code = dr_request_test(request, &done);
    const int waited = dr_request_wait(&request);
    return code != DR_SUCCESS ? code : waited;
  }

  /// What is wrong with the arrays after a transfer; nothing if it is right.
  std::string wrong() {
    for (std::size_t t = 0; t < moves_.size(); ++t) {
      if (!moves_[t].layouts[layout_].target.is_right()) return text("target ", t, " is wrong");
      if (!moves_[t].layouts[layout_].source.is_right()) return text("source ", t, " was written to");
    }
    return "";
  }

  /// Uses the memory of the arrays for other things, or frees it.
  void take_back(bool frees) {
    for (std::size_t t = 0; t < moves_.size(); ++t) {
      ArrayMemory &source = moves_[t].layouts[layout_].source, &target = moves_[t].layouts[layout_].target;
      source.take_back(frees);
      target.take_back(frees);
      sources_[t] = source.data();
      targets_[t] = target.data();
    }
  }
  bool is_taken_back() const {
    return std::all_of(moves_.begin(), moves_.end(), [this](const Move& move) {
      return move.layouts[layout_].source.is_taken_back() && move.layouts[layout_].target.is_taken_back();
    });
  }

  int free() {
    const Scope library(true);
    return plan_ ? dr_plan_free(&plan_) : DR_SUCCESS;
  }

 private:
  /// Made by the C interface, except for grids of which some coordinates take no part.
  static dr_distribution* distribution(const Index* list, const Index* end) {
    dr_distribution* made = nullptr;
    const int ndim = static_cast<int>(list[1]);
    const Index* const shape = list + 2;
    int code = DR_SUCCESS;
    if (list[0] == margins_kind) {
      const std::vector<int> periodic(shape + ndim, shape + 2 * ndim);
      code = dr_distribution_create_halo(distribution(shape + 2 * ndim, end), shape, periodic.data(), &made);
    } else if (list[0] == tiled_kind) {
      code = dr_distribution_create_tiles(ndim, shape, shape + ndim, shape + 2 * ndim, &made);
    } else if (list[0] == boxed_kind) {
      std::vector<Index> owners, offsets, extents;
      for (const Index* box = shape + ndim + 1; box < end; box += 1 + 2 * ndim) {
        owners.push_back(box[0]);
        offsets.insert(offsets.end(), box + 1, box + 1 + ndim);
        extents.insert(extents.end(), box + 1 + ndim, box + 1 + 2 * ndim);
      }
      code =
          dr_distribution_create_boxes(ndim, shape, shape[ndim], offsets.data(), extents.data(), owners.data(), &made);
    } else {
      const Index* const grid = list + 3 + ndim;
      const Index *const dims = grid + list[2], *const block = dims + ndim, *const pins = block + ndim;
      const Index *const ranks = pins + list[2] + 1, *const lengths = ranks + ranks[-1];
      if (std::any_of(pins, ranks - 1, [](Index pin) { return pin != -1; }))
        return make_handle(dr_distribution{Distribution({list, end})}).release();
      const std::vector<int> axes(dims, dims + ndim);
      std::vector<Index> blocks(block, block + ndim);
      blocks.insert(blocks.end(), lengths, end);
      code = dr_distribution_create_blocks(ndim, list + 3, static_cast<int>(list[2]), grid, axes.data(), blocks.data(),
                                           ranks[-1] > 0 ? ranks : nullptr, &made);
    }
    if (code != DR_SUCCESS) throw Error(dr_error());
    return made;
  }

  void add(Move& move, const Options& options, const char* strategy) {
    ArrayMemory &source = move.layouts[0].source, &target = move.layouts[0].target;
    dr_problem problem;
    dr_problem_init(&problem);
    problem.source = distribution(move.source.data(), move.source.data() + move.source.size());
    problem.target = distribution(move.target.data(), move.target.data() + move.target.size());
    problem.element_bytes = move.element_bytes;
    problem.strategy = strategy;
    problem.options = options;
    problem.source_shape = source.local_array().shape.data();
    problem.source_strides = source.local_array().strides.data();
    problem.target_shape = target.local_array().shape.data();
    problem.target_strides = target.local_array().strides.data();
    const std::size_t ndim = static_cast<std::size_t>(problem.source->checked.ndim());
    problem.reshape = !move.index_map.empty() && move.index_map[0] == reshape_after_axes ? 1 : 0;
    if (!move.index_map.empty()) {
      const auto axes = move.index_map.begin() + problem.reshape;
      problem.axes = axes_.emplace_back(axes, axes + static_cast<std::ptrdiff_t>(ndim)).data();
    }
    if (!problem.reshape && move.index_map.size() > ndim) {
      problem.region_source_offset = move.index_map.data() + ndim;
      problem.region_target_offset = problem.region_source_offset + ndim;
      problem.region_shape = problem.region_target_offset + ndim;
    }
    const ElementOperation& operation = move.operation;
    problem.operation.source_type = static_cast<int>(operation.source);
    problem.operation.target_type = static_cast<int>(operation.target);
    problem.operation.alpha[0] = operation.alpha.real();
    problem.operation.beta[0] = operation.beta.real();
    problem.operation.conjugate = operation.conjugate;
    problem.operation.op = static_cast<int>(operation.reduction);
    problem.operation.wire_type = static_cast<int>(operation.wire);
    problem.operation.wire_within_nodes = operation.wire_within_nodes;
    problem.operation.accumulate_type = static_cast<int>(operation.accumulate);
    problem.operation.reproducible = operation.reproducible;
    problems_.push_back(problem);
    sources_.push_back(source.data());
    targets_.push_back(target.data());
  }

  std::vector<Move> moves_;
  std::list<std::vector<int>> axes_;
  std::vector<dr_problem> problems_;
  std::vector<const void*> sources_, nulls_;
  std::vector<void*> targets_;
  std::size_t layout_ = 0;
  dr_plan* plan_ = nullptr;
};

/// One case after another.
class Checker {
 public:
  explicit Checker(bool threads) : threads_(threads) {
    const int world_rank = comm_rank(MPI_COMM_WORLD);
    PMPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comms_[1]);
    PMPI_Comm_split(MPI_COMM_WORLD, world_rank % 3 == 2 ? MPI_UNDEFINED : 0, world_rank, &comms_[2]);
    PMPI_Comm_dup(MPI_COMM_WORLD, &comms_[0]);
    for (std::size_t c = 0; c < comms_.size(); ++c)
      if (comms_[c] != MPI_COMM_NULL) PMPI_Comm_dup(comms_[c], &controls_[c]);
  }

  /// Every rank reads the case; those of its communicator carry it out, by every strategy, several times.
  void check_all(Reader& reader, Index number) {
    constexpr std::size_t layouts = 2;
    const Case the = read_case(reader, number, {comms_.begin(), comms_.end()}, layouts);
    std::vector<const char*> all(strategies.begin(), strategies.end());
    all.push_back("Toy");
    numbers_[passed] += static_cast<long>(all.size() * layouts * 2);
    if (the.comm == MPI_COMM_NULL) return;
    for (const char* strategy : all) {
      set_nodes(number % 4);
      Redistribution one(the, strategy);
      name_ = text("case ", number, ": ", strategy);
      if (one.create(the.comm) != DR_SUCCESS) fail(dr_error());
      for (std::size_t layout = 0; layout < layouts; ++layout) {
        if (layout > 0) one.use_layout(layout);
        for (const Mode mode : {execute, wait}) {
          if (one.move(mode) != DR_SUCCESS) fail(dr_error());
          check_arrays(text("layout ", layout, ", ", mode_names[mode]), one);
        }
      }
      one.free();
    }
  }

  /// As check_all(), by one strategy and with a fault.
  void check_fault(Reader& reader, Index number, std::uint64_t seed, bool skipped) {
    const Case the = read_case(reader, number, {comms_.begin(), comms_.end()}, 1);
    if (skipped || the.comm == MPI_COMM_NULL) return;
    Random random(seed * 1000003 + static_cast<std::uint64_t>(number));
    control_ = controls_[static_cast<std::size_t>(std::find(comms_.begin(), comms_.end(), the.comm) - comms_.begin())];
    const char* const strategy = strategies[static_cast<std::size_t>(random.between(0, strategies.size() - 1))];
    set_nodes(random.between(0, 3));
    const bool fresh = random.one_in(4);
    Fault fault;
    fault.kind = static_cast<Kind>(random.between(0, kinds - 1));
    fault.rank = static_cast<int>(random.between(0, comm_size(control_) - 1));
    fault.at = static_cast<double>(random.between(0, 999)) / 1000;
    fault.mode = static_cast<Mode>(random.between(0, threads_ ? thread : test));
    fault.creation = (fault.kind >= collective_call && fault.kind <= connecting) ||
                     (fault.kind == allocation && fault.mode == execute) ||
                     (fault.kind <= mpi_call && random.one_in(2));
    run(text("case ", number, ", seed ", seed), the, strategy, fault, fresh);
  }

  /// As check_fault(), by every strategy, at every stage and on the first, a middle and the last rank; the number of
  /// the case says in which mode.
  void check_table(Reader& reader, Index number, Index stride) {
    const Case the = read_case(reader, number, {comms_.begin(), comms_.end()}, 1);
    if (the.comm == MPI_COMM_NULL) return;
    control_ = controls_[0];
    const int size = comm_size(control_);
    for (const char* strategy : strategies)
      for (const Kind kind : {making, connecting, null_array, beginning, copy_step})
        for (const int rank : {0, size / 2, size - 1})
          for (const int nodes : {1, 2}) {
            if (number_of_row_++ % stride != 0) continue;
            set_nodes(nodes == 1 ? 0 : (size + 1) / 2);
            const auto mode = static_cast<Mode>((number + kind + rank) % (threads_ ? modes : thread));
            const Fault fault{kind, rank, -1, kind <= connecting, mode};
            run(text("case ", number, ", ", nodes, " nodes"), the, strategy, fault, rank == 0);
          }
  }

  /// As check_fault(), by every strategy, at every `stride`th allocation of the first and the last rank, while the plan
  /// of a new communicator is made and while a transfer runs.
  void check_allocations(Reader& reader, Index number, Index stride) {
    const Case the = read_case(reader, number, {comms_.begin(), comms_.end()}, 1);
    if (the.comm == MPI_COMM_NULL) return;
    control_ = controls_[0];
    set_nodes(0);
    for (const char* strategy : strategies)
      for (const int rank : {0, comm_size(control_) - 1})
        for (const bool creation : {true, false}) {
          int any = 1;
          for (Index at = 1 + number_of_row_++ % stride; any; at += stride) {
            const Fault fault{allocation, rank, static_cast<double>(at), creation, creation ? execute : wait};
            struck = false;
            run(text("case ", number, ", allocation ", at), the, strategy, fault, creation);
            any = struck;
            PMPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, control_);
          }
        }
  }

  /// Two threads have plans of their own, by some strategies, and move their arrays: all ranks execute a plan, or all
  /// start it, and complete it in ways that differ between ranks.
  void check_threads(Reader& reader, Index number) {
    const Case the = read_case(reader, number, {comms_.begin(), comms_.end()}, 1);
    if (the.comm == MPI_COMM_NULL) return;
    Random shared(static_cast<std::uint64_t>(number));
    name_ = text("case ", number, ":");
    std::list<Redistribution> plans;
    for (int t = 0; t < 2; ++t) {
      const char* const strategy = strategies[static_cast<std::size_t>(shared.between(0, strategies.size() - 1))];
      set_nodes(shared.between(0, 3));
      name_ += text(" ", strategy);
      if (plans.emplace_back(the, strategy).create(the.comm) != DR_SUCCESS) fail(dr_error());
    }
    Watchdog::begin(name_);
    std::vector<std::thread> threads;
    for (Redistribution& one : plans)
      threads.emplace_back([&, seed = static_cast<std::uint64_t>(shared.between(0, 1 << 30))] {
        Random agreed(seed), random(seed + 1 + static_cast<std::uint64_t>(comm_rank(comms_[0])));
        for (int n = 0; n < 20; ++n) {
          const auto mode = static_cast<Mode>(agreed.one_in(3) ? Index{execute} : random.between(wait, test));
          if (one.move(mode) != DR_SUCCESS) fail(dr_error());
          check_arrays(text("transfer ", n), one);
        }
        if (random.one_in(2)) one.free();
      });
    for (std::thread& thread : threads) thread.join();
    for (Redistribution& one : plans) one.free();
    Watchdog::end();
    if (overlaps > 0) fail(text(overlaps.load(), " calls of MPI while another thread was in one"));
    ++numbers_[passed];
  }

  void print() const {
    long sums[counts];
    PMPI_Reduce(numbers_, sums, counts, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    double seconds = 0;
    PMPI_Reduce(&longest_, &seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (comm_rank(MPI_COMM_WORLD) == 0)
      std::printf("%ld checks passed; %ld faults: %ld errors, %ld survived; longest stage %.1f s\n", sums[passed],
                  sums[faults], sums[errors], sums[survived], seconds);
  }

 private:
  struct Fault {
    Kind kind;
    int rank;
    double at;  // part of the calls before it, or from 1 on its number; < 0: none, and every rank gets an error
    bool creation;
    Mode mode;
  };
  enum { passed, faults, errors, survived, counts };

  /// As many ranks as are said to be a node.
  static void set_nodes(Index ranks) { setenv(node_ranks_variable, std::to_string(ranks).c_str(), 1); }

  /// Carries out a stage on all ranks, which afterwards know the outcomes of all.
  template <class Work>
  std::vector<int> stage(const std::string& what, const Work& work) {
    const double start = PMPI_Wtime();
    Watchdog::begin(text("rank ", comm_rank(MPI_COMM_WORLD), " in ", what, " of ", name_));
    for (std::atomic<long>& count : calls) count = 0;
    const int code = work();
    armed = kinds;
    std::copy(calls.begin(), calls.end(), counted_.begin());
    if (code != DR_SUCCESS && std::strlen(dr_error()) == 0) throw Error(text(what, ": error without a text"));
    message_ = code == DR_SUCCESS ? "" : dr_error();
    longest_ = std::max(longest_, PMPI_Wtime() - start);
    std::vector<int> codes(static_cast<std::size_t>(comm_size(control_)));
    PMPI_Allgather(&code, 1, MPI_INT, codes.data(), 1, MPI_INT, control_);
    Watchdog::end();
    return codes;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(text(name_, " (at ", where.load(), "): ", what, message_.empty() ? "" : ": ", message_));
  }

  template <class Work>
  void succeed(const std::string& what, const Work& work) {
    const std::vector<int> codes = stage(what, work);
    for (std::size_t r = 0; r < codes.size(); ++r)
      if (codes[r] != DR_SUCCESS) fail(text(what, ": code ", codes[r], " on rank ", r));
  }

  void check_arrays(const std::string& what, Redistribution& one) const {
    if (const std::string wrong = one.wrong(); !wrong.empty()) fail(text(what, ": ", wrong));
  }

  /// Arms the fault, somewhere among so many calls of each kind.
  void arm(const Fault& fault, const std::array<long, kinds>& count) {
    struck = false;
    where = "";
    long number = count[fault.kind] == 0 ? 0
                  : fault.at >= 1
                      ? static_cast<long>(fault.at)
                      : 1 + static_cast<long>(std::max(0.0, fault.at) * static_cast<double>(count[fault.kind]));
    if (fault.kind == collective_call)
      PMPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_LONG, MPI_MIN, control_);
    else if (comm_rank(control_) != fault.rank)
      number = 0;
    left = number;
    if (number > 0) armed = fault.kind;
  }

  void run(const std::string& name, const Case& the, const char* strategy, const Fault& fault, bool fresh) {
    name_ = text(name, ": ", strategy, fresh ? ", new communicator" : "", ", ", mode_names[fault.mode], ", ",
                 kind_names[fault.kind], " fails on rank ", fault.rank, " while the ",
                 fault.creation ? "plan is made" : "transfer runs");
    MPI_Comm comm = the.comm;
    if (fresh) PMPI_Comm_dup(the.comm, &comm);
    auto clean = std::make_unique<Redistribution>(the, strategy);
    succeed("the clean plan", [&] { return clean->create(comm); });
    const std::array<long, kinds> made = counted_;
    succeed("the clean transfer", [&] { return clean->move(fault.mode); });
    const std::array<long, kinds> moved = counted_;
    check_arrays("the clean transfer", *clean);
    clean->free();
    if (fresh) {
      PMPI_Barrier(control_);
      PMPI_Comm_free(&comm);
      PMPI_Comm_dup(the.comm, &comm);
    }
    Redistribution failing(the, strategy);
    fails(failing, comm, fault, fault.creation ? made : moved);
    succeed("free", [&] { return failing.free(); });
    check_next(the, strategy, fault.mode, comm);
    if (!failing.is_taken_back()) fail("memory was changed that the arrays had before");
    if (fresh) {
      PMPI_Barrier(control_);
      PMPI_Comm_free(&comm);
    }
  }

  /// Makes a plan and uses it, with the fault in one of both. A plan that fails when it is connected may be made on
  /// other ranks: they get an error when they use it, as does a rank that uses a plan after a transfer that failed.
  /// \param count  calls that are made where nothing fails.
  void fails(Redistribution& one, MPI_Comm comm, const Fault& fault, const std::array<long, kinds>& count) {
    std::string wrong;
    Random random(std::hash<std::string>()(name_));
    const bool frees = random.one_in(2);
    const int slow = static_cast<int>(random.between(0, comm_size(control_))), most = random.one_in(4) ? 1000 : 0;
    const auto create = [&] { return one.create(comm); };
    const auto move = [&] {
      delay = comm_rank(control_) == slow ? most : 0;
      const int code = one.move(fault.mode);
      wrong = code == DR_SUCCESS ? one.wrong() : "";
      one.take_back(frees);
      delay = 0;
      return code;
    };
    if (!fault.creation) succeed("the plan", create);
    arm(fault, count);
    const std::vector<int> codes =
        fault.creation ? stage("the failing plan", create) : stage("the failing transfer", move);
    const bool failed = std::any_of(codes.begin(), codes.end(), [](int code) { return code != DR_SUCCESS; });
    if (struck) {
      ++numbers_[faults];
      ++numbers_[failed ? errors : survived];
    }
    const auto rank = static_cast<std::size_t>(comm_rank(control_));
    const bool mine = codes[rank] == DR_SUCCESS;
    const auto check_taken = [&](const char* what) {
      if (!wrong.empty()) fail(text(what, ": code 0, but ", wrong));
      if (!one.is_taken_back()) fail(text(what, ": memory was changed that the arrays had before"));
    };
    if (fault.creation) one.take_back(frees);
    check_taken("the failing transfer");
    if (!failed) return succeed("the transfer after it", move), check_taken("the transfer after it");
    const auto move_again = [&] { return mine ? move() : int{DR_ERROR_EXECUTE}; };
    std::vector<int> moved = stage("the transfer after it", move_again);
    check_taken("the transfer after it");
    while (fault.at < 0 && std::count(moved.begin(), moved.end(), int{DR_SUCCESS}) > 0)  // the watchdog ends it
      moved = stage("transfers until an error", move_again);
  }

  /// The next plan on the communicator works.
  void check_next(const Case& the, const char* strategy, Mode mode, MPI_Comm comm) {
    Redistribution next(the, strategy);
    succeed("the next plan", [&] { return next.create(comm); });
    for (int run = 0; run < 2; ++run) {
      succeed("the next transfer", [&] { return next.move(mode); });
      check_arrays("the next transfer", next);
    }
    succeed("free", [&] { return next.free(); });
  }

  bool threads_;
  std::array<MPI_Comm, 3> comms_{MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
  std::array<MPI_Comm, 3> controls_{MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};  // of the same ranks
  MPI_Comm control_ = MPI_COMM_NULL;                                               // of the case at hand
  std::string name_, message_;
  std::array<long, kinds> counted_{};  // calls of the last stage
  long numbers_[counts] = {};
  long number_of_row_ = 0;  // of the table
  double longest_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const bool serialized = argc > 3 && argv[3] == std::string("threads");
  int provided = 0;
  MPI_Init_thread(&argc, &argv, serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &provided);
  const auto number = [&](int at) { return at < argc ? std::atoll(argv[at]) : 0; };
  try {
    if (argc < 4) throw Error("usage: see the file");
    const bool all = argv[3] == std::string("all"), table = argv[3] == std::string("table"),
               allocations = argv[3] == std::string("allocations");
    if (!all) {
      Watchdog::install();
      if (!serialized) replace_strategies(std::make_index_sequence<strategies.size()>());
    }
    Checker checker(provided == MPI_THREAD_MULTIPLE);
    Reader reader(text(argv[1], "/", comm_rank(MPI_COMM_WORLD)));
    for (Index c = 0; c < number(2); ++c)
      if (all)
        checker.check_all(reader, c);
      else if (serialized)
        checker.check_threads(reader, c);
      else if (table)
        checker.check_table(reader, c, number(4));
      else if (allocations)
        checker.check_allocations(reader, c, number(4));
      else
        checker.check_fault(reader, c, static_cast<std::uint64_t>(number(3)), c < number(4));
    checker.print();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm_rank(MPI_COMM_WORLD), error.what());
    std::fflush(stderr);
    PMPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
