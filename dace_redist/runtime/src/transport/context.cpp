// SPDX-License-Identifier: BSD-3-Clause
#include "transport/context.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <limits>
#include <numeric>
#include <random>

#include "copy/huge_pages.hpp"
#include "core/agreement.hpp"
#include "core/machine.hpp"
#include "core/options.hpp"
#include "shm/available_memory.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dace_redist {
namespace {

/// The contexts of this process.
struct Contexts {
  std::mutex guard;
  std::list<std::weak_ptr<Context>> all;
  int keyval = MPI_KEYVAL_INVALID;
  std::atomic<std::uint64_t> made{(std::uint64_t{std::random_device()()} << 32) ^ std::random_device()()};
};

Contexts& contexts() {
  static auto* const every = new Contexts;
  return *every;
}

/// Frees the context of a communicator that is freed.
int delete_attribute(MPI_Comm, int, void* attribute, void*) {
  const std::unique_ptr<std::shared_ptr<Context>> held(static_cast<std::shared_ptr<Context>*>(attribute));
  (*held)->detach();
  return MPI_SUCCESS;
}

/// MPI_Finalize() deletes the attributes of MPI_COMM_SELF first, while MPI can still be used. What ranks free together
/// they free in the order of numbers: threads may have made contexts in any order.
int close_all(MPI_Comm, int, void*, void*) {
  std::map<std::uint64_t, std::shared_ptr<Context>> open;
  for (const std::weak_ptr<Context>& context : contexts().all)
    if (std::shared_ptr<Context> one = context.lock()) open[one->number()] = std::move(one);
  for (const auto& [number, context] : open) context->close();
  return MPI_SUCCESS;
}

int context_keyval() {
  Contexts& every = contexts();
  const std::lock_guard<std::mutex> locked(every.guard);
  if (every.keyval != MPI_KEYVAL_INVALID) return every.keyval;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, &every.keyval, nullptr),
        "MPI_Comm_create_keyval");
  int at_end = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close_all, &at_end, nullptr), "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, at_end, nullptr), "MPI_Comm_set_attr");
  check(MPI_Comm_free_keyval(&at_end), "MPI_Comm_free_keyval");  // lives as long as the attribute
  return every.keyval;
}

/// The cores that this process may run on. OpenMP may have bound this thread to one of its places.
cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
#ifdef _OPENMP
  std::array<int, CPU_SETSIZE> numbers{};
  for (int place = 0; place < omp_get_num_places(); ++place) {
    const int count = omp_get_place_num_procs(place);
    if (count > CPU_SETSIZE) continue;
    omp_get_place_proc_ids(place, numbers.data());
    std::for_each_n(numbers.begin(), count, [&cores](int core) { CPU_SET(core, &cores); });
  }
#endif
  return cores;
}

}  // namespace

bool Topology::is_partner(int rank) const { return std::binary_search(partners.begin(), partners.end(), rank); }

int max_node_ranks() {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  return static_cast<int>(
      environment_number(node_ranks_variable, "ranks >= 0 (0: all ranks of a node)", most).value_or(0));
}

/// Local steps that may fail precede an agreement of the ranks, since all others wait in MPI for this one.
std::shared_ptr<Context> Context::of(MPI_Comm comm) {
  void* attribute = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(comm, context_keyval(), &attribute, &found), "MPI_Comm_get_attr");
  if (found) return *static_cast<std::shared_ptr<Context>*>(attribute);
  int inter = 0;
  check(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (inter)
    throw ArgumentError(
        "comm is an intercommunicator, which only plans of distributions take: merge its groups by "
        "MPI_Intercomm_merge first");
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  complete(request, comm, "the first plan of a communicator");  // MPI_Comm_dup would not say who is missing
  Communicator copy;
  check(MPI_Comm_dup(comm, copy.put()), "MPI_Comm_dup");
  std::shared_ptr<Context> made;
  std::unique_ptr<std::shared_ptr<Context>> held;  // by the attribute
  all_or_none(copy.get(), [&] {
    made.reset(new Context(copy.get()));
    held = std::make_unique<std::shared_ptr<Context>>(made);
  });
  made->comm_ = std::move(copy);
  made->map_partners(made->find_nodes().get());
  try {
    all_or_none(made->comm(), [&] {
      Contexts& every = contexts();
      const std::lock_guard<std::mutex> locked(every.guard);
      every.all.remove_if([](const std::weak_ptr<Context>& context) { return context.expired(); });
      every.all.push_back(made);
      check(MPI_Comm_set_attr(comm, every.keyval, held.get()), "MPI_Comm_set_attr");
      held.release();
    });
  } catch (...) {
    if (!held) MPI_Comm_delete_attr(comm, context_keyval());
    throw;
  }
  return made;
}

void Context::detach() {
  if (windows_.empty()) return;  // on all ranks
  const bool has_plans = weak_from_this().use_count() > 1;
  int any[] = {has_plans, !has_plans};
  MPI_Allreduce(MPI_IN_PLACE, any, 2, MPI_INT, MPI_MAX, comm());
  if (any[0] && any[1]) self_ = shared_from_this();
}

void Context::close() {
  if (comm() != MPI_COMM_NULL) caught([this] { failure_of(0); });  // takes note of failures
  int failed = failed_;
  if (!windows_.empty())
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm());  // a notice may be under way
  for (const auto& pooled : windows_) {  // plans may have them: those of other ranks may be freed already
    if (failed) *pooled->window.put() = MPI_WIN_NULL;
    pooled->window = Window();
  }
  windows_.clear();
  self_.reset();
  const auto free = [failed](Communicator& one) {
    if (failed) *one.put() = MPI_COMM_NULL;
    one = Communicator();
  };
  for (auto& [ranks, node] : node_comms_) free(node);
  for (Communicator& duplicate : duplicates_) free(duplicate);
  free(comm_);
}

Context::Context(MPI_Comm comm) : rank_(comm_rank(comm)) {
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  void* limit = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found), "MPI_Comm_get_attr");
  const std::int64_t max_tag = found ? *static_cast<int*>(limit) : 32767;
  max_plans_ = (max_tag - first_plan_tag - tags_of_plan) / tags_of_plan;
  world_ranks_ = ranks_in(comm, MPI_COMM_WORLD);
  node_of_.resize(world_ranks_.size());
  partners_.reserve(world_ranks_.size());
  near_ranks_.reserve(world_ranks_.size());
}

/// \return the ranks of this node, in their order here.
Communicator Context::find_nodes() {
  Communicator node;
  check(MPI_Comm_split_type(comm(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, node.put()), "MPI_Comm_split_type");
  int lowest = rank_;
  check(MPI_Bcast(&lowest, 1, MPI_INT, 0, node.get()), "MPI_Bcast");
  check(MPI_Allgather(&lowest, 1, MPI_INT, node_of_.data(), 1, MPI_INT, comm()), "MPI_Allgather");
  for (int rank = 0; rank < size(); ++rank)
    if (node_of_[static_cast<std::size_t>(rank)] == lowest) {
      partners_.push_back(rank);
      near_ranks_.push_back(world_ranks_[static_cast<std::size_t>(rank)]);
    }
  cpu_set_t cores = own_cores();
  check(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, node.get()), "MPI_Allreduce");
  cores_of_ranks = std::max<std::int64_t>(cores_of_ranks, CPU_COUNT(&cores));
  return node;
}

/// Bytes of address space that the arena of each rank of a node may take: half of it is for other things.
std::int64_t max_arena_bytes(std::size_t ranks) {
  constexpr std::uint64_t address_space = std::uint64_t{1} << 47;
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(RLIMIT_AS, &limit);
  return static_cast<std::int64_t>(std::min<std::uint64_t>(address_space, limit.rlim_cur) / 2 / ranks);
}

void Context::map_partners(MPI_Comm node) {
  ArenaName mine;
  std::vector<ArenaName> names;
  all_or_none(comm(), [&] { names.resize(partners_.size()); });
  std::exception_ptr failure = caught([&] {
    if (shared_memory_limit() == 0) throw Error(text(shared_memory_variable, " is 0"));
    Arena::own().shrink(max_arena_bytes(partners_.size()) / huge_page_bytes * huge_page_bytes);
    mine = Arena::own().name();
  });
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, names.data(), sizeof mine, MPI_BYTE, node), "MPI_Allgather");
  if (!failure)
    failure = caught([&] {
      for (const ArenaName& name : names) {
        const bool maps = name.descriptor >= 0 && !(name == mine);  // a rank that has no arena says why itself
        arenas_.push_back(maps ? PeerArena::map(name) : nullptr);
      }
    });
  number_ = ++contexts().made;
  check(MPI_Bcast(&number_, 1, MPI_UINT64_T, 0, comm()), "MPI_Bcast");
  const int failed = lowest_rank(comm(), failure != nullptr);
  if (failed < 0) return;
  no_shared_memory_ = text("rank ", failed, ": ", broadcast_text(comm(), failure ? message_of(failure) : "", failed));
  arenas_.clear();
}

const Topology& Context::topology() {
  const int max_ranks = max_node_ranks();
  const auto found = topologies_.find(max_ranks);
  if (found != topologies_.end()) return found->second;
  Topology made;
  std::map<std::pair<int, int>, int> lowest;  // rank by node and part of it
  const auto part = [&](std::size_t rank) { return max_ranks > 0 ? world_ranks_[rank] / max_ranks : 0; };
  for (std::size_t rank = 0; rank < node_of_.size(); ++rank)
    made.node_of.push_back(lowest.insert({{node_of_[rank], part(rank)}, static_cast<int>(rank)}).first->second);
  for (const int rank : partners_)
    if (made.node_of[static_cast<std::size_t>(rank)] == made.node_of[static_cast<std::size_t>(rank_)])
      made.partners.push_back(rank);
  std::vector<std::size_t> order(node_of_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return made.node_of[a] < made.node_of[b]; });
  made.node_order.resize(order.size());
  for (std::size_t place = 0; place < order.size(); ++place) made.node_order[order[place]] = static_cast<Index>(place);
  return topologies_.emplace(max_ranks, std::move(made)).first->second;
}

PeerArena* Context::arena_of(int rank) const {
  const auto found = std::lower_bound(partners_.begin(), partners_.end(), rank);
  if (arenas_.empty() || found == partners_.end() || *found != rank) return nullptr;
  return arenas_[static_cast<std::size_t>(found - partners_.begin())].get();
}

void Context::renew_tags() {
  if (plans_ - first_ <= max_plans_ / 2) return;
  all_or_none(comm(), [&] { duplicates_.reserve(duplicates_.size() + 1); });
  Communicator made;
  check(MPI_Comm_dup(comm(), made.put()), "MPI_Comm_dup");
  duplicates_.push_back(std::move(made));
  first_ = plans_;
}

int Context::tag(std::int64_t plan) const {
  if (plan - first_ >= max_plans_) throw Error("the plan has more tensors than MPI has tags: make several plans");
  return first_plan_tag + static_cast<int>(plan - first_) * tags_of_plan;
}

MPI_Comm Context::node_comm() {
  Communicator* node = nullptr;
  all_or_none(comm(), [&] { node = &node_comms_[max_node_ranks()]; });
  if (node->get() != MPI_COMM_NULL) return node->get();
  check(MPI_Comm_split(comm(), topology().partners.front(), rank_, node->put()), "MPI_Comm_split");
  all_or_none(comm(),
              [&] { check(MPI_Comm_set_errhandler(node->get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"); });
  return node->get();
}

std::shared_ptr<PooledWindow> Context::take_window(std::int64_t nbytes) {
  // of each window, the lowest of all ranks: 1 it is large enough, 0 too small, -1 a plan uses it
  std::vector<int> fits;
  std::shared_ptr<PooledWindow> made;
  all_or_none(comm(), [&] {
    made = std::make_shared<PooledWindow>();
    windows_.reserve(windows_.size() + 1);
    for (const auto& pooled : windows_) fits.push_back(pooled.use_count() > 1 ? -1 : pooled->nbytes >= nbytes);
  });
  check(MPI_Allreduce(MPI_IN_PLACE, fits.data(), static_cast<int>(fits.size()), MPI_INT, MPI_MIN, comm()),
        "MPI_Allreduce");
  for (std::size_t w = 0; w < windows_.size(); ++w)
    if (fits[w] == 1) return windows_[w];
  for (std::size_t w = windows_.size(); w-- > 0;)
    if (fits[w] == 0) windows_.erase(windows_.begin() + static_cast<std::ptrdiff_t>(w));
  made->nbytes = nbytes;
  check(MPI_Win_allocate(static_cast<MPI_Aint>(nbytes), 1, MPI_INFO_NULL, comm(), &made->memory, made->window.put()),
        "MPI_Win_allocate");
  all_or_none(comm(), [&] {  // ranks free the window together
    check(MPI_Win_set_errhandler(made->window.get(), MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  });
  return windows_.emplace_back(std::move(made));
}

void Context::report_failure(std::int64_t plan, const std::string& message) noexcept {
  const Failure* told = nullptr;
  caught([&] { told = failure_of(plan); });
  if (told) return;  // all others are told by that rank
  try {
    const std::lock_guard<std::mutex> locked(failures_guard_);
    failed_ = true;
    Failure failure{plan, rank_};
    message.copy(failure.message.data(), failure.message.size() - 1);
    tell(failure, 1, size());
  } catch (...) {  // out of memory: the ranks not told yet are not told
  }
}

/// \param first, last  distances from the rank that failed: of the first rank to be told, and of the one after the
/// last.
void Context::tell(const Failure& failure, std::int64_t first, std::int64_t last) {
  std::vector<int> ranks;
  for (std::int64_t distance = first; distance < std::min<std::int64_t>(last, size()); ++distance)
    ranks.push_back(static_cast<int>((failure.rank + distance) % size()));
  send(failure, sizeof failure, ranks);
}

void Context::send(const Failure& notice, std::size_t nbytes, const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  auto& [sent, requests] = failures_sent_.emplace_back(notice, std::vector<MPI_Request>());
  requests.reserve(ranks.size());
  for (const int rank : ranks) {
    MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
    const int count = static_cast<int>(nbytes);
    if (MPI_Isend(&sent, count, MPI_BYTE, rank, failure_tag, comm(), &request) != MPI_SUCCESS) requests.pop_back();
  }
}

void Context::report_leaving(std::int64_t plan, const std::vector<int>& ranks) {
  const std::lock_guard<std::mutex> locked(failures_guard_);
  send({plan}, sizeof plan, ranks);
}

const Failure* Context::failure_of(std::int64_t plan) {
  const std::lock_guard<std::mutex> locked(failures_guard_);
  failures_sent_.remove_if([](auto& sent) {
    std::vector<MPI_Request>& requests = sent.second;
    int done = 0;
    return MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
           done;
  });
  for (int arrived = 1; arrived;) {
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, failure_tag, comm(), &arrived, &status), "MPI_Iprobe");
    if (!arrived) break;
    Failure failure;
    check(MPI_Recv(&failure, sizeof failure, MPI_BYTE, status.MPI_SOURCE, failure_tag, comm(), MPI_STATUS_IGNORE),
          "MPI_Recv");
    failed_ = true;
    int nbytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &nbytes), "MPI_Get_count");
    if (nbytes < static_cast<int>(sizeof failure)) {
      left_.insert({failure.plan, status.MPI_SOURCE});
      continue;
    }
    if (!failures_.insert({failure.plan, failure}).second) continue;
    const std::int64_t distance = (rank_ - failure.rank + size()) % size();
    tell(failure, 2 * distance + 1, 2 * distance + 3);  // its children in a binary tree
  }
  const auto found = failures_.find(plan);
  return found == failures_.end() ? nullptr : &found->second;
}

void Context::check_failures(std::int64_t plan) {
  if (const Failure* const failure = failure_of(plan))
    throw Error(text("on rank ", failure->rank, ": ", failure->message.data()));
}

}  // namespace dace_redist
