// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The interface of everything that moves messages. A plan has a list of transports, each with a part of the messages;
/// a strategy says which transport gets which. Start reading at: Transport.

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "core/options.hpp"
#include "transport/context.hpp"
#include "transport/message.hpp"

namespace dace_redist {

/// How a transfer goes on after begin().
enum class Pace {
  attended,   ///< the caller calls progress() until the transfer is done
  unattended  ///< the caller may do other things first: what needs no partner is done, and posted to MPI, at once
};

/// How far a rank has left a transfer that failed, here or on another rank.
enum class Leaving {
  receiving,  ///< it may use arrays of other ranks, or MPI write to its own
  lending,    ///< other ranks, or MPI, may use its arrays
  left        ///< its arrays are the program's again
};

/// Moves messages of this rank, any number of times. Made with the plan.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Second step of making a transport, after all ranks have made theirs. Collective if any rank's is.
  virtual void connect() {}

  /// Takes over messages between the same ranks, of the same sizes, from and to arrays with other strides. Local.
  virtual void replan(Messages messages) = 0;

  /// Begins a transfer; waits for no other rank.
  virtual void begin(const Arrays& arrays, Pace pace) = 0;
  /// Does what can be done without waiting. \return whether that was anything.
  virtual bool progress() = 0;
  virtual bool done() const = 0;
  /// Whether all that needs a partner's start is posted to MPI in an unattended transfer: its caller may do other
  /// things.
  virtual bool posted() const { return true; }

  /// Leaves a transfer that failed, and begins nothing more. Called again until this rank has left. A transport
  /// overrides it if other ranks, or MPI, use the arrays.
  virtual Leaving leave() { return Leaving::left; }
  /// Whether neither MPI nor other ranks use its memory, of a rank that has left.
  virtual bool at_rest() const { return done(); }

  /// Whether progress() makes no MPI calls, so that a thread of the library may call it.
  virtual bool runs_without_mpi() const { return false; }
  /// Partners on this node that wait for this rank may need it to go on: wakes those that this rank waits for.
  virtual void wake_partners() {}
  /// Number of times that partners ring before progress() has to be called, > 0.
  virtual std::uint32_t awaited_rings() const { return 1; }
};

/// Bytes of a transfer that MPI is sending, and how many may be: option `max_in_flight_bytes`.
class BytesInFlight {
 public:
  explicit BytesInFlight(const Options& options)
      : most_(options.max_in_flight_bytes > 0 ? options.max_in_flight_bytes : std::numeric_limits<Index>::max() / 2) {}

  void reset() { now_ = 0; }
  /// Whether a message may be sent as well. One may be longer than all may be.
  bool admits(Index nbytes) const { return now_ == 0 || now_ + nbytes <= most_; }
  void add(Index nbytes) { now_ += nbytes; }

 private:
  Index most_, now_ = 0;
};

/// What a transport is made from. The references outlive it.
struct Link {
  Context& context;
  const Topology& topology;
  const Tensors& tensors;
  const Options& options;
  std::int64_t plan;   ///< number of the exchange
  std::int64_t owner;  ///< number of the plan, by which ranks tell failures
  MPI_Comm messages;   ///< for the messages of the exchange
  int tag;             ///< tags `tag` and `tag + 1` are the transport's own
  /// This rank's messages if the arrays of other ranks have these layouts: [tensors], by rank.
  std::function<Messages(const std::vector<Layouts>& sources, const std::vector<Layouts>& targets)> plan_messages;

  MPI_Comm comm() const { return messages; }
  int rank() const { return context.rank(); }
  /// Threads for copies. \param if_unset  if the option does not say.
  int threads(int if_unset = 1) const { return options.threads > 0 ? static_cast<int>(options.threads) : if_unset; }
};

/// Makes a transport for messages. \throws Error if this rank cannot.
using MakeTransport = std::unique_ptr<Transport> (*)(const Link& link, Messages messages);

}  // namespace dace_redist
