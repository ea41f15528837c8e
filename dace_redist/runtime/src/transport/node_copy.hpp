// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copies of the messages between ranks of a node: pieces of several messages at a time, and the order in which a
/// sender goes through its source. Start reading at: SendScheduler.

#include <array>
#include <cstddef>
#include <vector>

#include "trace/trace.hpp"
#include "transport/node_channel.hpp"

namespace dace_redist {

/// The transfer at hand, as all channels of a rank see it.
struct NodeTransfer {
  std::uint64_t number = 0;  ///< counts the transfers, from 1 on
  Arrays arrays;
  const Tensors* tensors = nullptr;
  int threads = 1;
  std::size_t open = 0;         ///< channels that are not done
  bool tells = false;           ///< whether a channel is told
  Stay stay, last_stay;         ///< in this transfer, and in the last one
  bool sources_shared = false;  ///< whether all sources of this rank lie in its arena
  bool large_source = false;    ///< whether this rank sends more than stays in the cache meanwhile

  // Whether copies of each kind write with non-temporal stores:
  bool stream_pushed = false, stream_pulled = false, stream_unpacked = false, stream_self = false;

  const Tensor& tensor(int number_of_tensor) const { return *(*tensors)[static_cast<std::size_t>(number_of_tensor)]; }
  void begin(const Arrays& new_arrays) {
    arrays = new_arrays;
    ++number;
    last_stay = stay;
    stay.begun = stay.ended = Stay::now();
  }
  /// Something was stored for the partner of a channel.
  void tell(Channel& channel) { tells = channel.told = true; }
  void close(Channel& channel) {
    channel.done = true;
    if (--open == 0) stay.ended = Stay::now();
  }
  void close_if_done(Channel& channel) {
    if (channel.cutter.done()) close(channel);
  }
  /// Closes a channel whose elements this rank has copied, and tells the partner.
  void finish_if_done(Channel& channel) {
    if (!channel.cutter.done()) return;
    if (channel.handshake) {
      channel.handshake->finished.store(number, std::memory_order_release);
      tell(channel);
    }
    close(channel);
  }
};

/// Channels whose next pieces are copied together, so that source lines that they share are read once: moved by the
/// same protocol, with the same stores, equally shaped, and equally far.
class CopyBatch {
 public:
  static bool can_batch(const Channel& channel, const Channel& first) {
    return !channel.done && channel.protocol == first.protocol && channel.streams == first.streams &&
           channel.shape == first.shape && channel.cutter.same_position(first.cutter);
  }

  /// Takes `first`, and the channels that can be batched with it and are ready, up to max_batch.
  template <class Ready>
  void collect(std::vector<Channel>& channels, Channel& first, const Ready& ready) {
    only(first);
    for (Channel& channel : channels) {
      if (count_ == max_batch) break;
      if (&channel != &first && can_batch(channel, first) && ready(channel)) channels_[count_++] = &channel;
    }
  }

  void only(Channel& channel) {
    channels_[0] = &channel;
    count_ = 1;
  }

  std::size_t count() const { return count_; }
  Channel& first() const { return *channels_[0]; }
  Channel& operator[](std::size_t index) const { return *channels_[index]; }
  Channel* const* begin() const { return channels_.data(); }
  Channel* const* end() const { return channels_.data() + count_; }

 private:
  std::array<Channel*, max_batch> channels_{};
  std::size_t count_ = 0;
};

/// Copies the next piece of each channel of a batch into the partners' arrays, or this rank's own.
void push(NodeTransfer& transfer, const CopyBatch& batch);
/// Copies the next piece of each channel of a batch out of the partners' arrays.
void pull(NodeTransfer& transfer, const CopyBatch& batch);
/// Packs the next piece of each channel of a batch into its slot, which must be free.
void pack(NodeTransfer& transfer, const CopyBatch& batch);
/// Unpacks the pieces of a channel that have arrived. \return whether there were any.
bool unpack(NodeTransfer& transfer, Channel& channel);
/// Bytes to read at once. With a quarter of it, large messages take up to 7 % longer; with twice as much, other
/// messages of the rank wait for longer than that saves.
inline constexpr Index read_bytes = Index{2} << 20;
/// Reads the next piece out of the partner's private memory. \return false if the kernel refuses.
bool read(NodeTransfer& transfer, Channel& channel);

/// Whether a sender may write the next piece of a staged message.
bool has_free_slot(Channel& channel);
/// Whether a staged piece has arrived that is not yet unpacked.
bool has_piece(const Channel& channel);
/// The piece that arrived first was unpacked.
void free_slot(NodeTransfer& transfer, Channel& channel);

/// Sends what a rank pushes or packs in the order of its source, from the lowest address to the highest, whatever
/// receiver a piece is for. The first channel is the self copy.
class SendScheduler {
 public:
  void begin() { full_ring_polls_ = 0; }

  /// Copies the piece that lies first in the source, and those of other receivers that can be batched with it. For a
  /// receiver among these without a free slot it waits a little, so that rows go on being read once for all.
  /// \return false if there is nothing to send, or no room for it.
  bool send_piece(NodeTransfer& transfer, std::vector<Channel>& sends);

 private:
  void send(NodeTransfer& transfer, std::vector<Channel>& sends, Channel& first);

  CopyBatch batch_;
  int full_ring_polls_ = 0;
};

}  // namespace dace_redist
