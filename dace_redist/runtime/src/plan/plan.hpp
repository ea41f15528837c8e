// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What all strategies share: a private communicator, this rank's schedule, and the copies that stay on the rank.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "copy/packing.hpp"
#include "core/agreement.hpp"
#include "core/export.hpp"
#include "plan/description.hpp"
#include "trace/trace.hpp"

namespace dace_redist {

/// A redistribution ready to run, any number of times. Making and freeing one is collective. A strategy derives from
/// it, prepares what is local, connects what needs the other ranks, and runs without allocating.
class DR_API Plan {
 public:
  virtual ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Makes a plan of type P. Collective over `comm`; a rank with the null communicator takes no part.
  /// \throws Error on every rank if a rank cannot make it, or if the ranks disagree on what to do.
  template <class P>
  static std::unique_ptr<P> make(const Description& description, MPI_Comm comm) {
    auto made = std::make_unique<P>();
    static_cast<Plan&>(*made).set_up(description, comm);
    return made;
  }

  /// Looks at other local arrays from now on: shapes and strides may differ, what is moved may not. After an error the
  /// plan keeps the arrays that it had. Local.
  void set_local_arrays(const Encoding& source_local, const Encoding& target_local);

  /// The device's stream of the caller: what it has enqueued there comes before, and the result is there for what it
  /// enqueues afterwards. At first the default stream.
  virtual void set_stream(Stream stream) { stream_ = stream; }

  /// \return the name of an array, "source" or "target", of which elements move but whose address is null; else
  /// nothing.
  virtual std::string missing_array(const void* source, const void* target) const;

  /// Moves the tensor. Collective over the ranks that have a part in it.
  void run(const void* source, void* target) {
    if (!active()) return;
    const trace::Span span = span_of("run");
    exchange(static_cast<const char*>(source), static_cast<char*>(target));
  }

  /// Begins to move the tensor; progress() goes on. Local.
  void start(const void* source, void* target) {
    if (!active()) return;
    const trace::Span span = span_of("start");
    begin(static_cast<const char*>(source), static_cast<char*>(target));
  }

  /// Does what can be done now of what was started. \return whether all is done; not to be called again then.
  bool progress() {
    const trace::Span span("progress");
    return !active() || advance();
  }

  /// Does all that is left of what was started.
  void finish();

  const Description& description() const { return description_; }

 protected:
  Plan() = default;

  /// Buffers, copies and datatypes from the schedule. Local; may be called again.
  virtual void prepare() = 0;
  /// What takes all ranks to make. Collective; called once.
  virtual void connect() {}
  virtual void exchange(const char* source, char* target) = 0;

  /// The exchange in two parts: begin() waits for no other rank, and advance() as little as it can. A strategy without
  /// parts does everything in advance().
  virtual void begin(const char* source, char* target) {
    started_source_ = source;
    started_target_ = target;
  }
  virtual bool advance() {
    exchange(started_source_, started_target_);
    return true;
  }

  /// exchange() as begin() and advance(), for strategies that implement only these.
  void exchange_in_parts(const char* source, char* target);

  MPI_Comm comm() const { return comm_.get(); }
  int rank() const { return rank_; }
  const Options& options() const { return description_.options; }
  /// Bytes of an element of the source.
  Index element_bytes() const { return description_.element_bytes; }
  const ElementSteps& steps() const { return steps_; }
  const RankSchedule& schedule() const { return schedule_; }
  Stream stream() const { return stream_; }
  const LocalLayout& source_layout() const { return source_layout_; }
  const LocalLayout& target_layout() const { return target_layout_; }

  /// The schedule for given arrays of other ranks: their offsets and strides are right then, too.
  RankSchedule schedule_with(Layouts sources, Layouts targets) const;

  std::vector<Message> sends_in_order() const;
  std::vector<Message> receives_in_order() const;
  /// The turn of a message: in a round every rank sends to one and receives from one, as far as they have messages. So
  /// no rank is everybody's first target.
  virtual Index round(Index source, Index target) const { return (target - source + size_) % size_; }

  const CopyList& self_copies() const { return self_copies_; }
  void copy_self(const char* source, char* target) const {
    const trace::Span span("copy", trace::no_peer, schedule_.self.count * element_bytes());
    self_copies_.copy(source, target);
  }

  /// Starts sending bytes in as many messages as their number needs.
  void post_send(const char* bytes, Index nbytes, int peer, std::vector<MPI_Request>& requests) const;
  void post_receive(char* bytes, Index nbytes, int peer, std::vector<MPI_Request>& requests) const;
  /// Runs `work`, which needs node-shared memory, on every rank; false on every rank if it threw on any, of which the
  /// first time in a process one line on standard error tells. Collective.
  bool works_on_node(const std::function<void()>& work) const;

  /// Number of MPI messages that `nbytes` take.
  Index message_count(Index nbytes) const { return ceil_div(nbytes, options().max_message_bytes); }

  static constexpr int tag = 1;  // one is enough: the communicator is private and messages of a pair stay in order

 private:
  void set_up(const Description& description, MPI_Comm comm);
  /// set_local_arrays(), which may leave the plan half changed.
  void change_local_arrays(const Encoding& source_local, const Encoding& target_local);
  bool active() const { return comm() != MPI_COMM_NULL; }
  trace::Span span_of(const char* kind) const {
    return {kind, description_.label.c_str(), description_.strategy.c_str()};
  }

  void check_ranks(const Distribution& distribution) const;

  Description description_;
  ElementSteps steps_;
  Communicator comm_;
  int rank_ = 0, size_ = 1;
  LocalLayout source_layout_, target_layout_;
  RankSchedule schedule_;
  CopyList self_copies_;
  const char* started_source_ = nullptr;
  char* started_target_ = nullptr;
  Stream stream_ = nullptr;
};

}  // namespace dace_redist
