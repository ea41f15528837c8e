// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Ranks that wait for long say for whom. Start reading at: LongWait.
///
/// A rank that waits in an operation has an abstract Unix socket of that name, by which the other ranks of its node see
/// that it is there: before they share a communicator, and without MPI. Sockets end with their process.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dace_redist {

/// The value of an environment variable; if it is not set, or not a number, `initial`.
double environment_seconds(const char* name, double initial);

/// Environment variable: seconds after which a rank that waits says so; 0: never.
inline constexpr const char* wait_message_variable = "DACE_REDIST_WAIT_MESSAGE";

/// The value of the variable; 10 if it is not set, or not a number.
double wait_message_seconds();

/// The name of the socket of a rank of MPI_COMM_WORLD in an operation: equal in the processes that one launcher started
/// on a node, and in no others. It follows a byte 0 in the address.
std::string presence_name(int rank, std::string_view operation);

/// The line that a rank prints.
/// \param operation  with its label, or the place of its call.
/// \param missing    ranks that are not in it; empty: not known which.
/// \param elsewhere  whether ranks of other nodes take part.
std::string wait_message(int rank, double seconds, const std::string& operation, const std::vector<int>& missing,
                         bool elsewhere);

/// An operation in which ranks wait for each other. Its texts and its list outlive it.
struct JointOperation {
  const char* kind;               ///< such as `transfer`
  const char* label;              ///< for people; empty: none
  const char* advice;             ///< after the message
  std::uint64_t number;           ///< tells operations of one kind apart; equal on all ranks
  int rank;                       ///< this one, in MPI_COMM_WORLD
  const std::vector<int>* ranks;  ///< those of this node, in MPI_COMM_WORLD; null: not known
  bool elsewhere = false;         ///< whether ranks of other nodes take part
};

/// A wait for other ranks. Costs nothing until it is slow.
class LongWait {
 public:
  /// \param operation  outlives the wait.
  explicit LongWait(const JointOperation& operation) : operation_(operation) {}
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;
  ~LongWait() {
    if (socket_ >= 0) leave();
  }

  /// Called now and then while nothing can be done. What fails is not said.
  void look() noexcept;
  /// Something was done: the next look() begins anew.
  void reset() { since_ = {}; }

 private:
  void enter();
  void leave();
  void tell(double seconds) const;

  const JointOperation& operation_;
  std::chrono::steady_clock::time_point since_;  ///< of the first look
  int socket_ = -1;
  bool told_ = false;
};

}  // namespace dace_redist
