// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What two ranks of a node share in memory for the messages from one to the other: the state of the message at hand.
///
/// An exchange is one message for each pair of ranks. Its states, and the counter by which the sender (S) or the
/// receiver (R) causes each transition:
///
///           R: entered            S: decision
///     idle ------------> entered -+-> push ---- S: finished ------------------------------> idle
///                                 |     ^
///                                 |     | R: refused, S: decision (if S has mapped the target)
///                                 +-> read ---- R: finished ------------------------------> idle
///                                 |     | R: refused, S: decision (else)
///                                 |     v
///                                 +-> staged -- per piece S: written, R: read; the last --> idle
///                                 |     ^
///                                 |     | R: refused, S: decision
///                                 +-> pull ---- R: finished ------------------------------> idle
///
/// A receiver refuses where it cannot map the source (pull) or the kernel does not let it read (read), at most once in
/// an exchange. Who does not copy learns that the message is done from `finished`, or from the pieces counted.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "copy/copy.hpp"
#include "copy/copy_kernels.hpp"
#include "layout/schedule.hpp"
#include "node/shared_array.hpp"

namespace dace_redist {

/// Strides of a local array as plain numbers, for shared memory; none: C order.
struct PlainStrides {
  PlainStrides() = default;
  explicit PlainStrides(const LocalLayout& layout) : ndim(static_cast<Index>(layout.strides.size())) {
    std::copy(layout.strides.begin(), layout.strides.end(), values.begin());
  }

  /// \return the strides as they are known outside of shared memory.
  LocalLayout layout() const { return {{values.begin(), values.begin() + ndim}}; }

  bool operator==(const LocalLayout& layout) const {
    return layout.strides.size() == static_cast<std::size_t>(ndim) &&
           std::equal(layout.strides.begin(), layout.strides.end(), values.begin());
  }

  Index ndim = 0;
  std::array<Index, max_block_dims> values{};
};

/// How a message moves, see NodeExchange.
enum class Protocol : std::uint64_t { undecided, staged, push, pull, read };

/// What a rank tells its partner about an array for one exchange.
struct AdvertisedArray {
  SharedArrayFinder::ArrayLocation location;
  PlainStrides strides;
  std::uintptr_t address = 0;  ///< of the source, where it is not node-shared
  std::int64_t process = 0;    ///< that has it at this address
  Index most_copied = 0;       ///< of the target: bytes that its rank copies if it reads all that it receives
  double unpack_seconds = 0;   ///< of the target: per byte, in the last exchange; 0 if nothing was staged or timed
};

/// One direction of one pair of ranks, in shared memory. Numbers of exchanges and pieces only grow, each counter has
/// one writer and a cache line of its own.
struct MessageState {
  using Counter = std::atomic<std::uint64_t>;
  static_assert(Counter::is_always_lock_free, "counters in shared memory must be lock-free");
  static constexpr std::int64_t line_bytes = detail::line_bytes;
  static constexpr std::uint64_t protocols = 8;  ///< more than there are

  alignas(line_bytes) Counter entered;   ///< by the receiver: exchange for which `target` holds
  alignas(line_bytes) Counter decision;  ///< by the sender: exchange * protocols + protocol; `source` holds for it
  alignas(line_bytes) Counter finished;  ///< by who copies: exchange that was pushed, pulled or read
  alignas(line_bytes) Counter refused;   ///< by the receiver: exchange that it can neither pull nor read
  alignas(line_bytes) Counter written;   ///< by the sender: staged pieces
  alignas(line_bytes) Counter read;      ///< by the receiver: staged pieces
  alignas(line_bytes) AdvertisedArray target;  ///< by the receiver
  alignas(line_bytes) AdvertisedArray source;  ///< by the sender

  /// Publishes the sender's choice for an exchange.
  void decide(std::uint64_t exchange, Protocol protocol) {
    decision.store(exchange * protocols + static_cast<std::uint64_t>(protocol), std::memory_order_release);
  }

  /// \return the sender's choice for an exchange; undecided if it has made none yet.
  Protocol decided(std::uint64_t exchange) const {
    const std::uint64_t number = decision.load(std::memory_order_acquire);
    return number / protocols == exchange ? static_cast<Protocol>(number % protocols) : Protocol::undecided;
  }

  /// \return whether the receiver has advertised its target for an exchange.
  bool has_entered(std::uint64_t exchange) const { return entered.load(std::memory_order_acquire) == exchange; }

  /// \return whether the message of an exchange was copied as a whole.
  bool is_finished(std::uint64_t exchange) const { return finished.load(std::memory_order_acquire) == exchange; }

  /// \return whether the receiver could neither pull nor read in an exchange.
  bool is_refused(std::uint64_t exchange) const { return refused.load(std::memory_order_acquire) == exchange; }
};
static_assert(sizeof(MessageState) <= 1024, "strategy_memory.py counts 1024 bytes");

}  // namespace dace_redist
