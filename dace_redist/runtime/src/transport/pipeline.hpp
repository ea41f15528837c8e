// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Chunks of messages on their way through the slots of a buffer, in main memory or on a device. Start reading at:
/// Pipeline.

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/machine.hpp"
#include "core/stay.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// One direction of a pipeline: its chunks in order, and the slots that they pass through. A lane has, besides:
///
/// - `std::size_t begin(arrays, pace)`: begins a transfer, and returns the number of slots;
/// - `void copy(chunk, slot)`: starts to pack a chunk into its slot, or to unpack it from there;
/// - `void post(chunk, slot, request)`: starts to send a chunk, or to receive it.
class Lane {
 public:
  /// Whether the copy of a slot is done, as far as the slot is concerned.
  static constexpr bool copied(std::size_t) { return true; }
  /// Of a chunk that was received and copied: its sender may use the slot again.
  static constexpr void give_back(std::size_t, std::size_t) {}
  /// Of a chunk that was sent: whether its slot was given back.
  static constexpr bool given_back(std::size_t, std::size_t) { return true; }
  static constexpr int no_rank = -1;
  /// The rank to which MPI sends a chunk from the array; no_rank if from a slot.
  static constexpr int lent_to(std::size_t) { return no_rank; }

  std::vector<Index> steps;  ///< [chunks] of their messages
  std::vector<Index> sizes;  ///< [chunks] bytes

 protected:
  /// Sets the places of slots: each as large as its own chunk if there is one for each, else as the largest.
  void lay_out(std::size_t slots, const std::vector<Index>& chunk_bytes, Index alignment) {
    const bool one_each = slots == chunk_bytes.size();
    const Index most = chunk_bytes.empty() ? 0 : *std::max_element(chunk_bytes.begin(), chunk_bytes.end());
    offsets_ = {0};
    for (std::size_t slot = 0; slot < slots; ++slot)
      offsets_.push_back(offsets_.back() + round_up(one_each ? chunk_bytes[slot] : most, alignment));
  }
  Index slot_bytes() const { return offsets_.back(); }  ///< of all slots

  std::vector<Index> offsets_{0};  // [slots + 1] bytes
};

/// Moves chunks, a number of them in flight per direction.
///
/// Cannot deadlock: both sides go through their chunks by step, see Messages. Of all chunks that are not done take the
/// one of the lowest step: all before it are done on both sides, so both have a free slot for it, or have posted it,
/// and its sender has received what it waits for.
///
/// An attended pipeline sends no more than a few chunks ahead of what it has received in the same steps. Otherwise
/// ranks get out of step, several send to one at the same time, and where its link is the limit, packets are dropped.
/// With `max_in_flight_bytes` the next chunk waits until enough of those before it are sent.
///
/// Partial results are unpacked in the order of the chunks, which is that of the reduction, and the self copy between
/// those of the summands before and after it.
template <class AnyLane>
class Pipeline : public Transport {
 public:
  void begin(const Arrays& arrays, Pace pace) override {
    reset(arrays, pace);
    done_ = false;
    for (std::size_t slot = 0; slot < receives_.slots(); ++slot) receive_next(slot);
    waits_ = !arrays_ready();
    if (!waits_) start();
  }

  bool progress() override {
    if (done_) return false;
    bool any = waits_;
    if (waits_) {
      if (!arrays_ready()) return false;
      waits_ = false;
      start();
    }
    any |= send_copied();
    any |= take_ready(
        unpacking_, [this](std::size_t slot) { return receives_->copied(slot); },
        [this](std::size_t slot) { end_receive(slot); });
    any |= take_ready(
        lent_, [this](std::size_t slot) { return sends_->given_back(sends_.chunk_in[slot], slot); },
        [this](std::size_t slot) { end_send(slot); });
    if (any) send_next();
    const int count = test_some(requests_, completed_);
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
      if (request < receives_.slots()) {
        take(request);
      } else if (const std::size_t slot = request - receives_.slots();
                 sends_->given_back(sends_.chunk_in[slot], slot)) {
        end_send(slot);
      } else {
        lent_.push_back(slot);
      }
      send_next();
    }
    finish_if_done();
    return any || count > 0;
  }

  bool done() const override { return done_; }

  /// A receive that has matched cannot be cancelled, and completes as long as its sender has not left. A send that has
  /// not matched when its receiver has left never will; but MPI may send a short message without a match, later if it
  /// has no room for it at once, and gets some time for that.
  Leaving leave() override {
    const auto receives_end = requests_.begin() + static_cast<std::ptrdiff_t>(receives_.slots());
    const auto is_open = [](MPI_Request request) { return request != MPI_REQUEST_NULL; };
    if (!std::exchange(leaves_, true)) {
      for (auto request = requests_.begin(); request != receives_end; ++request)
        if (is_open(*request)) check(MPI_Cancel(&*request), "MPI_Cancel");
      finish();
    }
    test_some(requests_, completed_);
    if (std::any_of(requests_.begin(), receives_end, is_open)) return Leaving::receiving;
    bool lends = false;
    for (std::size_t slot = 0; slot < sends_.slots(); ++slot) {
      if (!is_open(requests_[receives_.slots() + slot])) continue;
      const int receiver = sends_->lent_to(sends_.chunk_in[slot]);
      if (receiver == Lane::no_rank) continue;
      if (!link_.context.has_left(link_.owner, receiver)) return Leaving::lending;
      lends = true;
    }
    constexpr double max_seconds = 0.2;
    if (lends && lends_alone_since_ < 0) lends_alone_since_ = Stay::now();
    return lends && Stay::now() < lends_alone_since_ + max_seconds ? Leaving::lending : Leaving::left;
  }
  bool at_rest() const override {
    return lent_.empty() && unpacking_.empty() && sent_ == sends_.started &&
           std::all_of(requests_.begin(), requests_.end(), [](MPI_Request one) { return one == MPI_REQUEST_NULL; });
  }

 protected:
  /// \param max_ahead  chunks that a rank sends ahead of those it has received.
  Pipeline(const Link& link, Index max_ahead)
      : link_(link), in_order_(are_partial(link.tensors)), max_ahead_(max_ahead), in_flight_(link.options) {}

  /// Takes over lanes, which must outlive their use, and allocates what an attended transfer takes.
  void set(AnyLane& sends, AnyLane& receives, const PeerMessage& self) {
    sends_.lane = &sends;
    receives_.lane = &receives;
    has_self_ = self.nbytes > 0;
    self_before_ = static_cast<std::size_t>(std::lower_bound(receives.steps.begin(), receives.steps.end(), self.step) -
                                            receives.steps.begin());
    set_received_before();
    reset({}, Pace::attended);  // so that a run allocates nothing
  }

  /// Whether this rank may use the arrays.
  virtual bool arrays_ready() { return true; }
  virtual void copy_self(const Arrays& arrays) = 0;
  /// Everything has moved.
  virtual void finish() {}

  const Link link_;

 private:
  struct Direction {
    AnyLane* lane = nullptr;
    std::vector<std::size_t> chunk_in{};  // [slots]
    std::size_t started = 0, done = 0;    // chunks of the transfer at hand

    void set(std::size_t slots) {
      chunk_in.resize(slots);
      started = done = 0;
    }
    AnyLane* operator->() const { return lane; }
    std::size_t chunks() const { return lane->steps.size(); }
    std::size_t slots() const { return chunk_in.size(); }
  };

  static constexpr std::size_t no_slot = ~std::size_t{0};

  /// Takes those slots out of a list for which `is_ready` holds, and hands them to `then`. \return whether there were
  /// any.
  template <class IsReady, class Then>
  static bool take_ready(std::vector<std::size_t>& slots, const IsReady& is_ready, const Then& then) {
    bool any = false;
    for (std::size_t i = 0; i < slots.size();) {
      const std::size_t slot = slots[i];
      if (!is_ready(slot)) {
        ++i;
        continue;
      }
      slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(i));
      then(slot);
      any = true;
    }
    return any;
  }

  /// Counts, for each sent chunk, the chunks that must be received before: those of lower steps, and as many of its own
  /// step, less those that a rank may be ahead.
  void set_received_before() {
    const std::vector<Index>&sent = sends_->steps, &received = receives_->steps;
    received_before_.assign(sent.size(), 0);
    for (std::size_t s = 0; s < sent.size(); ++s) {
      const auto [first, last] = std::equal_range(received.begin(), received.end(), sent[s]);
      const auto in_step = std::lower_bound(sent.begin(), sent.end(), sent[s]) - sent.begin();
      const Index before = std::min(static_cast<Index>(s) - in_step, static_cast<Index>(last - first));
      received_before_[s] =
          static_cast<std::size_t>(std::max<Index>(0, first - received.begin() + before - max_ahead_));
    }
  }

  /// Before a transfer. Allocates what it takes, unless the transfer before was of equal pace. Where that fails, there
  /// is a request for each slot nevertheless.
  void reset(const Arrays& arrays, Pace pace) {
    arrays_ = arrays;
    pace_ = pace;
    const std::size_t send_slots = sends_->begin(arrays, pace), receive_slots = receives_->begin(arrays, pace);
    requests_.assign(receive_slots + send_slots, MPI_REQUEST_NULL);
    sends_.set(send_slots);
    receives_.set(receive_slots);
    completed_.resize(requests_.size());
    send_slots_.reserve(sends_.slots() + sends_.chunks());
    send_slots_.resize(sends_.slots());
    std::iota(send_slots_.begin(), send_slots_.end(), std::size_t{0});
    sent_ = unpacked_ = 0;
    in_flight_.reset();
    lent_.clear();
    unpacking_.clear();
    arrived_.assign(in_order_ ? receives_.chunks() : 0, no_slot);
    self_done_ = !has_self_;
  }

  void start() {
    send_next();
    if (in_order_) {
      unpack_in_order();
    } else if (!self_done_) {
      copy_self(arrays_);
      self_done_ = true;
    }
    finish_if_done();
  }

  void finish_if_done() {
    if (done_ || sends_.done < sends_.chunks() || receives_.done < receives_.chunks() || !self_done_) return;
    finish();
    done_ = true;
  }

  /// Packs the chunks that have a slot, and that have been waited for if the transfer is attended; sends them when they
  /// are packed.
  void send_next() {
    while (sends_.started < send_slots_.size() && sends_.started < sends_.chunks() &&
           in_flight_.admits(sends_->sizes[sends_.started]) &&
           (pace_ == Pace::unattended || receives_.done >= received_before_[sends_.started])) {
      const std::size_t chunk = sends_.started++, slot = send_slots_[chunk];
      sends_.chunk_in[slot] = chunk;
      in_flight_.add(sends_->sizes[chunk]);
      sends_->copy(chunk, slot);
      send_copied();
    }
  }

  bool send_copied() {
    bool any = false;
    for (; sent_ < sends_.started && sends_->copied(send_slots_[sent_]); ++sent_, any = true) {
      const std::size_t slot = send_slots_[sent_];
      sends_->post(sent_, slot, &requests_[receives_.slots() + slot]);
    }
    return any;
  }

  void end_send(std::size_t slot) {
    ++sends_.done;
    in_flight_.add(-sends_->sizes[sends_.chunk_in[slot]]);
    send_slots_.push_back(slot);
  }

  void receive_next(std::size_t slot) {
    if (receives_.started == receives_.chunks()) return;
    receives_.chunk_in[slot] = receives_.started++;
    receives_->post(receives_.chunk_in[slot], slot, &requests_[slot]);
  }

  /// A chunk has arrived in a slot.
  void take(std::size_t slot) {
    if (!in_order_) return unpack(slot);
    arrived_[receives_.chunk_in[slot]] = slot;
    unpack_in_order();
  }

  void unpack_in_order() {
    for (;;) {
      if (!self_done_ && unpacked_ == self_before_) {
        copy_self(arrays_);
        self_done_ = true;
      }
      if (unpacked_ == receives_.chunks() || arrived_[unpacked_] == no_slot) return;
      unpack(arrived_[unpacked_]);
    }
  }

  void unpack(std::size_t slot) {
    ++unpacked_;
    receives_->copy(receives_.chunk_in[slot], slot);
    if (receives_->copied(slot))
      end_receive(slot);
    else
      unpacking_.push_back(slot);
  }

  void end_receive(std::size_t slot) {
    receives_->give_back(receives_.chunk_in[slot], slot);
    ++receives_.done;
    receive_next(slot);
  }

  const bool in_order_;  // partial results
  Index max_ahead_;
  BytesInFlight in_flight_;
  Direction sends_, receives_;
  std::vector<std::size_t> received_before_;  // [sent chunks]
  bool has_self_ = false;
  std::size_t self_before_ = 0;  // of partial results: received chunks that are reduced before the self copy

  // Of the transfer at hand:
  Arrays arrays_;
  Pace pace_ = Pace::attended;
  std::vector<MPI_Request> requests_;  // receive slots, then send slots
  std::vector<int> completed_;         // [requests]
  // Of sends by chunk, first come, first served: a slot may be no larger than its own chunk. Free from sends_.started
  // on.
  std::vector<std::size_t> send_slots_;
  std::size_t sent_ = 0;                       // chunks that are packed, and posted to MPI
  std::size_t unpacked_ = 0;                   // chunks that are unpacked, or about to be
  std::vector<std::size_t> lent_, unpacking_;  // slots with which receivers, or copies, are not done
  std::vector<std::size_t> arrived_;           // [received chunks] slot of those that wait for their turn
  bool self_done_ = true, waits_ = false, done_ = true, leaves_ = false;
  double lends_alone_since_ = -1;  // seconds: when all receivers of sends that are open had left a transfer that failed
};

}  // namespace dace_redist
