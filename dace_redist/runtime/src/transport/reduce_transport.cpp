// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>
#include <vector>

#include "copy/buffer.hpp"
#include "core/agreement.hpp"
#include "core/machine.hpp"
#include "trace/trace.hpp"
#include "transport/chunk.hpp"
#include "transport/transports.hpp"

namespace dace_redist {
namespace {

MPI_Datatype mpi_type_of(ElementType type) {
#define DACE_REDIST_MPI_TYPE(enumerator, name, Type, kind, mpi) mpi,
  const MPI_Datatype types[] = {MPI_DATATYPE_NULL, DACE_REDIST_ELEMENT_TYPES(DACE_REDIST_MPI_TYPE)};
#undef DACE_REDIST_MPI_TYPE
  return types[static_cast<std::size_t>(type)];
}

/// Packs this rank's partial sums in the order of the members, has MPI add them, and unpacks its part of the sums.
class ReduceTransport final : public Transport {
 public:
  ReduceTransport(const Link& link, Messages messages) : link_(link) { replan(std::move(messages)); }

  void replan(Messages messages) override {
    pieces_ = std::move(messages.sends);
    unpack_.clear();
    if (PeerMessage& self = messages.self; self.nbytes > 0) {
      pieces_.push_back(self);
      self.summand = 0;
      unpack_ = cut(self, link_.tensors, Chunk::Side::received, unlimited);
    }
    std::sort(pieces_.begin(), pieces_.end(),
              [](const PeerMessage& a, const PeerMessage& b) { return a.peer < b.peer; });
    if (connected_) lay_out();
  }

  void connect() override {
    const Tensor& tensor = *link_.tensors.front();
    const std::uint64_t key = 0x5265'6475'6365ull * 31 + tensor.group_key;  // groups of equal distributions are equal
    members_ = link_.context.split(key, tensor.group >= 0 ? tensor.group : MPI_UNDEFINED);
    all_or_none(link_.comm(), [&] {
      if (!pieces_.empty()) find_members();
    });
    connected_ = true;
    lay_out();
  }

  void begin(const Arrays& arrays, Pace) override {
    arrays_ = arrays;
    done_ = pieces_.empty();
    if (done_) return;
    for (std::size_t p = 0; p < chunks_.size(); ++p) chunks_[p].pack(arrays, buffer_.at(offsets_[p]), link_.threads());
    const trace::Span span("sum", trace::no_peer, sums_);
    const int count = static_cast<int>(sums_ / element_bytes_);
    if (everyone_)
      check(MPI_Iallreduce(buffer_.at(0), result(), count, type_, MPI_SUM, members_->get(), &request_),
            "MPI_Iallreduce");
    else
      check(MPI_Ireduce_scatter(buffer_.at(0), result(), counts_.data(), type_, MPI_SUM, members_->get(), &request_),
            "MPI_Ireduce_scatter");
  }

  bool progress() override {
    if (done_) return false;
    int complete = 0;
    check(MPI_Test(&request_, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    if (!complete) return false;
    for (const Chunk& chunk : unpack_) chunk.unpack(result(), arrays_, link_.threads());
    done_ = true;
    return true;
  }

  bool done() const override { return done_; }

 private:
  /// \throws Error if a rank outside this rank's group owns a part.
  void find_members() {
    std::vector<int> ranks = ranks_in(members_->get(), link_.comm());
    for (const PeerMessage& piece : pieces_)
      if (!std::binary_search(ranks.begin(), ranks.end(), piece.peer))
        throw Error(text("the target must hold each of the partial sums of ranks ", tuple_text(ranks),
                         " on some of these; rank ", link_.rank(), " sends some to rank ", piece.peer));
    members_ranks_ = std::move(ranks);
  }

  void lay_out() {
    chunks_.clear();
    offsets_.clear();
    counts_.assign(members_ranks_.size(), 0);
    if (pieces_.empty()) return;
    element_bytes_ = link_.tensors.front()->message_bytes();
    type_ = mpi_type_of(link_.tensors.front()->operation.target);
    everyone_ = pieces_.size() == members_ranks_.size() && pieces_.size() > 1 &&
                std::all_of(pieces_.begin(), pieces_.end(), [&](const PeerMessage& piece) {
                  return piece.nbytes == pieces_[0].nbytes &&
                         piece.blocks.front().box.source_offset == pieces_[0].blocks.front().box.source_offset;
                });
    Index nbytes = 0;
    for (const PeerMessage& piece : pieces_) {
      if (everyone_ && nbytes > 0) break;
      for (Chunk& chunk : cut(piece, link_.tensors, Chunk::Side::sent, unlimited)) chunks_.push_back(std::move(chunk));
      offsets_.push_back(nbytes);
      const auto member = std::lower_bound(members_ranks_.begin(), members_ranks_.end(), piece.peer);
      counts_[static_cast<std::size_t>(member - members_ranks_.begin())] =
          static_cast<int>(piece.nbytes / element_bytes_);
      nbytes += piece.nbytes;
    }
    sums_ = nbytes;
    buffer_ = Buffer(2 * whole_lines(nbytes));
  }

  char* result() const { return buffer_.at(whole_lines(sums_)); }

  Link link_;
  std::vector<PeerMessage> pieces_;  // by peer: what this rank holds of the part of each owner
  std::vector<Chunk> chunks_, unpack_;
  std::vector<Index> offsets_;             // [chunks] bytes
  std::shared_ptr<Communicator> members_;  // no other plan's: after a failure some ranks have begun a sum, others not
  std::vector<int> members_ranks_;         // ascending
  std::vector<int> counts_;                // [members] elements
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  Index element_bytes_ = 1, sums_ = 0;
  bool everyone_ = false, connected_ = false;
  Buffer buffer_;  // partial sums, then sums

  // Of the transfer at hand:
  Arrays arrays_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool done_ = true;
};

}  // namespace

std::unique_ptr<Transport> make_reduced(const Link& link, Messages messages) {
  return std::make_unique<ReduceTransport>(link, std::move(messages));
}

}  // namespace dace_redist
