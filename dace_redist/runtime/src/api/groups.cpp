// SPDX-License-Identifier: BSD-3-Clause
#include "api/groups.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "core/agreement.hpp"
#include "core/long_wait.hpp"

namespace dace_redist {
namespace {

constexpr const char* wait_variable = "DACE_REDIST_GROUP_SECONDS";
constexpr double default_wait_seconds = 3600;
/// Until all ranks have left a round that one has left.
constexpr double leave_seconds = 60;

/// Until ranks that did not meet have left all rounds, when they free the communicator.
constexpr double free_seconds = 5;

/// The groups of an intercommunicator, which has this as an attribute.
struct Groups {
  Communicator merged;
  bool met = true;  // in all calls
  // Of the call at hand:
  int rounds = 0;           // that this rank has entered
  int said = 0, heard = 0;  // 1: a rank gave up
  MPI_Request request = MPI_REQUEST_NULL;
};

[[noreturn]] void throw_absent(double limit) {
  throw Error(text("ranks of the other group, or of this one, did not call within ", limit, " seconds (the limit is ",
                   wait_variable, "): every rank of both must; this intercommunicator has no further use"));
}

/// Waits for all ranks for a limited time, in three rounds. A rank that gave up in the first one enters the others when
/// the communicator is freed, and says so there: to the other group in the second round, which tells this one in the
/// third. So no rank goes on alone, and no round is left when the communicator is gone, which Open MPI does not
/// survive.
void meet(MPI_Comm comm, Groups& groups, double limit) {
  using Clock = std::chrono::steady_clock;
  while (groups.rounds < 3 || groups.request != MPI_REQUEST_NULL) {
    if (groups.request == MPI_REQUEST_NULL) {
      groups.said = std::max(groups.said, groups.heard);
      ++groups.rounds;
      check(MPI_Iallreduce(&groups.said, &groups.heard, 1, MPI_INT, MPI_MAX, comm, &groups.request), "MPI_Iallreduce");
    }
    const auto begin = Clock::now();
    for (int done = 0;;) {
      check(MPI_Test(&groups.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) break;
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      if (waited > (groups.rounds == 1 ? limit : std::min(limit, leave_seconds))) throw_absent(limit);
      const timespec nap{0, waited > 1e-3 ? std::min(10000000L, static_cast<long>(waited * 2e7)) : 0};
      nanosleep(&nap, nullptr);
    }
  }
  if (groups.heard != 0) throw_absent(limit);
}

int free_groups(MPI_Comm inter, int, void* attribute, void*) {
  const std::unique_ptr<Groups> groups(static_cast<Groups*>(attribute));
  if (groups->met) return MPI_SUCCESS;
  groups->said = 1;
  if (groups->merged.get() == MPI_COMM_NULL) caught([&] { meet(inter, *groups, free_seconds); });
  *groups->merged.put() = MPI_COMM_NULL;  // the other group may not free it
  return MPI_SUCCESS;
}

int groups_keyval() {
  static const int keyval = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_groups, &made, nullptr), "MPI_Comm_create_keyval");
    return made;
  }();
  return keyval;
}

/// The merged groups. Collective over both.
MPI_Comm merged_groups(MPI_Comm inter) {
  void* attribute = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(inter, groups_keyval(), &attribute, &found), "MPI_Comm_get_attr");
  if (!found) {
    auto made = std::make_unique<Groups>();
    check(MPI_Comm_set_attr(inter, groups_keyval(), made.get()), "MPI_Comm_set_attr");
    attribute = made.release();
  }
  auto& groups = *static_cast<Groups*>(attribute);
  if (!groups.met) throw Error("the groups of this intercommunicator did not meet in an earlier call");
  const bool is_merged = groups.merged.get() != MPI_COMM_NULL;
  groups.met = false;
  groups.rounds = groups.said = groups.heard = 0;
  meet(is_merged ? groups.merged.get() : inter, groups, environment_seconds(wait_variable, default_wait_seconds));
  groups.met = true;
  if (!is_merged) check(MPI_Intercomm_merge(inter, 0, groups.merged.put()), "MPI_Intercomm_merge");
  return groups.merged.get();
}

}  // namespace

PlanRanks::PlanRanks(MPI_Comm comm, int sends) : comm_(comm), sends_(sends > 0) {
  check(MPI_Comm_test_inter(comm, &is_inter_), "MPI_Comm_test_inter");
  if (!is_inter_) return;
  comm_ = merged_groups(comm);
  count_[0] = comm_size(comm);
  check(MPI_Comm_remote_size(comm, &count_[1]), "MPI_Comm_remote_size");
  const bool is_first = comm_rank(comm_) == comm_rank(comm);  // by MPI's choice
  first_[is_first ? 1 : 0] = count_[is_first ? 0 : 1];
  int found[2][2] = {};  // [group][sends]: whether a rank says so
  if (sends >= 0) found[is_first ? 0 : 1][sends_ ? 1 : 0] = 1;
  check(MPI_Allreduce(MPI_IN_PLACE, found, 4, MPI_INT, MPI_MAX, comm_), "MPI_Allreduce");
  const int sending = found[0][1] + found[1][1];
  if (sending != 1 || (found[0][0] && found[0][1]) || (found[1][0] && found[1][1]))
    throw Error(text("one group of the intercommunicator must send (`sends` in all its problems), but ",
                     sending == 0   ? "none does"
                     : sending == 2 ? "both do"
                                    : "ranks of a group differ"));
}

Distribution PlanRanks::placed(const Distribution& side, const char* name, bool is_source) const {
  if (!is_inter_) return {side, name};
  const int group = is_source == sends_ ? 0 : 1;
  if (side.ranks_needed() > count_[group])
    throw Error(text(name, " needs ", side.ranks_needed(), " ranks, but its group has ", count_[group]));
  return {side.shifted_ranks(first_[group]), name};
}

void PlanRanks::check_sends(const dr_problem& problem) const {
  if ((problem.sends != 0) != sends_) throw ArgumentError("all problems of a plan must have `sends` alike");
  if (sends_ && !is_inter_) throw ArgumentError("problem->sends must be 0 unless comm is an intercommunicator");
}

}  // namespace dace_redist
