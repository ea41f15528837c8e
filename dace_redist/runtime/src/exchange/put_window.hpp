// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A window into which the ranks of a plan put their messages.

#include <algorithm>
#include <utility>
#include <vector>

#include "core/mpi.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// One window per plan. Only partners synchronise: each rank opens its window to the ranks it receives from
/// (post/wait) and puts to the ranks it sends to (start/complete).
class PutWindow {
 public:
  /// A message, sent or received.
  struct Message {
    int peer = 0;
    Index nbytes = 0;
    Index window_offset = 0;  ///< bytes; of a message that is received in this rank's window, else in the receiver's
  };

  /// Collective.
  /// \param sends  [messages] their offsets in the windows of the receivers are found out here.
  /// \param memory  of this rank's window, of `nbytes`; null: MPI allocates it.
  void connect(MPI_Comm comm, int tag, std::vector<Message> sends, const std::vector<Message>& receives, char* memory,
               Index nbytes) {
    std::vector<MPI_Request> requests;
    for (Message& send : sends)
      check(MPI_Irecv(&send.window_offset, 1, MPI_INT64_T, send.peer, tag, comm, &requests.emplace_back()),
            "MPI_Irecv");
    for (const Message& receive : receives)
      check(MPI_Isend(&receive.window_offset, 1, MPI_INT64_T, receive.peer, tag, comm, &requests.emplace_back()),
            "MPI_Isend");
    wait_all(requests);
    sends_ = std::move(sends);
    targets_ = partners(comm, sends_);
    sources_ = partners(comm, receives);
    receives_any_ = !receives.empty();
    memory_ = memory;
    if (memory != nullptr)
      check(MPI_Win_create(memory, static_cast<MPI_Aint>(nbytes), 1, MPI_INFO_NULL, comm, window_.put()),
            "MPI_Win_create");
    else
      check(MPI_Win_allocate(static_cast<MPI_Aint>(nbytes), 1, MPI_INFO_NULL, comm, &memory_, window_.put()),
            "MPI_Win_allocate");
    check(MPI_Win_set_errhandler(window_.get(), MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  }

  /// Where what was received is.
  char* memory() const { return memory_; }

  /// Lets the senders put, and this rank put to its receivers.
  void open() {
    puts_ = true;
    if (receives_any_) check(MPI_Win_post(sources_.get(), 0, window_.get()), "MPI_Win_post");
    if (!sends_.empty()) check(MPI_Win_start(targets_.get(), 0, window_.get()), "MPI_Win_start");
  }

  /// Puts the bytes of a message.
  /// \param send  its number among those of connect(). \param most  bytes of a put.
  void put(std::size_t send, const char* bytes, Index most) const {
    const Message& message = sends_[send];
    const trace::Span span("put", message.peer, message.nbytes);
    for (Index at = 0; at < message.nbytes; at += most) {
      const int count = static_cast<int>(std::min(message.nbytes - at, most));
      check(MPI_Put(bytes + at, count, MPI_BYTE, message.peer, static_cast<MPI_Aint>(message.window_offset + at), count,
                    MPI_BYTE, window_.get()),
            "MPI_Put");
    }
  }

  /// Whether everything that was put arrived; may wait for the receivers to open their windows.
  bool arrived() {
    complete();
    int arrived = 1;
    if (receives_any_) check(MPI_Win_test(window_.get(), &arrived), "MPI_Win_test");
    return arrived != 0;
  }

  void wait() {
    const trace::Span span("wait");
    complete();
    if (receives_any_) check(MPI_Win_wait(window_.get()), "MPI_Win_wait");
  }

 private:
  void complete() {
    if (std::exchange(puts_, false) && !sends_.empty()) check(MPI_Win_complete(window_.get()), "MPI_Win_complete");
  }

  static Group partners(MPI_Comm comm, const std::vector<Message>& messages) {
    Group everyone, some;
    std::vector<int> ranks;
    for (const Message& message : messages) ranks.push_back(message.peer);
    check(MPI_Comm_group(comm, everyone.put()), "MPI_Comm_group");
    check(MPI_Group_incl(everyone.get(), static_cast<int>(ranks.size()), ranks.data(), some.put()), "MPI_Group_incl");
    return some;
  }

  std::vector<Message> sends_;
  bool receives_any_ = false;
  bool puts_ = false;       // whether they are still to be completed
  char* memory_ = nullptr;  // owned by window_ or the plan
  Group targets_, sources_;
  Window window_;
};

}  // namespace dace_redist
