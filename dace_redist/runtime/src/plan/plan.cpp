// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>

#include "core/backoff.hpp"

namespace dace_redist {

namespace {

template <class RoundOf>
std::vector<Message> in_rounds(std::vector<Message> messages, const RoundOf& round_of) {
  for (Message& message : messages) message.round = round_of(message.peer);
  std::sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) { return a.round < b.round; });
  return messages;
}

}  // namespace

Plan::~Plan() = default;

void Plan::set_up(const Description& description, MPI_Comm comm) {
  const trace::Span span("plan", description.label.c_str(), description.strategy.c_str());
  description_ = description;
  comm_ = duplicate(comm);
  if (!active()) return;
  rank_ = comm_rank(this->comm());
  size_ = comm_size(this->comm());
  check_agreement(this->comm(), description);
  all_or_none(this->comm(), [&] {
    check_options(description.options);
    stream_threshold_bytes();  // throws if the environment has it wrong
    check_node_ranks();
    if (element_bytes() < 1) throw Error(text("the element size must be 1 byte or more, got ", element_bytes()));
    steps_.set(description.operation, element_bytes());
    change_local_arrays(description.source_local, description.target_local);
  });
  connect();
}

void Plan::set_local_arrays(const Encoding& source_local, const Encoding& target_local) {
  const Encoding source_before = description_.source_local, target_before = description_.target_local;
  try {
    change_local_arrays(source_local, target_local);
  } catch (...) {
    change_local_arrays(source_before, target_before);
    throw;
  }
}

void Plan::change_local_arrays(const Encoding& source_local, const Encoding& target_local) {
  description_.source_local = source_local;
  description_.target_local = target_local;
  if (!active()) return;
  const Distribution source(description_.source, "source"), target(description_.target, "target");
  check_ranks(source);
  check_ranks(target);
  source_layout_ = local_layout(source, source_local, rank_, "source");
  target_layout_ = local_layout(target, target_local, rank_, "target");
  schedule_ = schedule_with({}, {});
  self_copies_.clear();
  for (const StridedBlock& block : schedule_.self.blocks) self_copies_.append(block, steps_.direct());
  prepare();
}

std::string Plan::missing_array(const void* source, const void* target) const {
  if (!source && schedule_.reads_source()) return "source";
  return !target && schedule_.writes_target() ? "target" : "";
}

void Plan::exchange_in_parts(const char* source, char* target) {
  begin(source, target);
  for (Backoff backoff(2, comm()); !advance();) backoff.wait();
}

void Plan::finish() {
  for (Backoff backoff(2, comm()); !progress();) backoff.wait();
}

RankSchedule Plan::schedule_with(Layouts sources, Layouts targets) const {
  sources[rank_] = source_layout_;
  targets[rank_] = target_layout_;
  const Distribution source(description_.source, "source"), target(description_.target, "target");
  return make_schedule(source, target, IndexMap(description_.index_map, source, target), rank_, true, sources, targets,
                       description_.replicas);
}

std::vector<Message> Plan::sends_in_order() const {
  return in_rounds(schedule_.sends, [this](Index peer) { return round(rank_, peer); });
}

std::vector<Message> Plan::receives_in_order() const {
  return in_rounds(schedule_.receives, [this](Index peer) { return round(peer, rank_); });
}

bool Plan::works_on_node(const std::function<void()>& work) const {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "unknown error";
  }
  const int failed = lowest_rank(comm(), !failure.empty());
  static std::atomic<bool> said{false};
  if (failed == rank() && !said.exchange(true))
    std::fprintf(stderr, "dace-redist: \"%s\": no node-shared memory (rank %d: %s); going over MPI\n",
                 description().label.c_str(), rank(), failure.c_str());
  return failed < 0;
}

void Plan::post_send(const char* bytes, Index nbytes, int peer, std::vector<MPI_Request>& requests) const {
  const trace::Span span("send", peer, nbytes);
  for (Index at = 0; at < nbytes; at += options().max_message_bytes) {
    const int count = static_cast<int>(std::min(nbytes - at, options().max_message_bytes));
    check(MPI_Isend(bytes + at, count, MPI_BYTE, peer, tag, comm(), &requests.emplace_back()), "MPI_Isend");
  }
}

void Plan::post_receive(char* bytes, Index nbytes, int peer, std::vector<MPI_Request>& requests) const {
  for (Index at = 0; at < nbytes; at += options().max_message_bytes) {
    const int count = static_cast<int>(std::min(nbytes - at, options().max_message_bytes));
    check(MPI_Irecv(bytes + at, count, MPI_BYTE, peer, tag, comm(), &requests.emplace_back()), "MPI_Irecv");
  }
}

void Plan::check_ranks(const Distribution& distribution) const {
  if (distribution.ranks_needed() > size_)
    throw Error(text("the ", distribution.name(), " distribution names ranks up to ", distribution.ranks_needed() - 1,
                     ", but the communicator has ", size_, " ranks; start the program with mpiexec -n ",
                     distribution.ranks_needed(), ", or pass a larger communicator"));
}

}  // namespace dace_redist
