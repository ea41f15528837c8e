// SPDX-License-Identifier: BSD-3-Clause
#include "plan/given_messages.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "core/agreement.hpp"

namespace dace_redist {
namespace {

using Words = std::vector<Index>;
using BlocksOfPeers = std::map<int, std::vector<SideBlock>>;

void append(Words& words, const BlocksOfPeers& side, int peer) {
  const auto found = side.find(peer);
  words.push_back(found == side.end() ? 0 : static_cast<Index>(found->second.size()));
  if (found == side.end()) return;
  for (const SideBlock& block : found->second) {
    words.insert(words.end(), {block.offset, static_cast<Index>(block.loops.size())});
    for (const auto& [count, stride] : block.loops) words.insert(words.end(), {count, stride});
  }
}

std::vector<SideBlock> take(Words::const_iterator& word) {
  std::vector<SideBlock> blocks(static_cast<std::size_t>(*word++));
  for (SideBlock& block : blocks) {
    block.offset = *word++;
    block.loops.resize(static_cast<std::size_t>(*word++));
    for (auto& [count, stride] : block.loops) {
      count = *word++;
      stride = *word++;
    }
  }
  return blocks;
}

template <class Visit>
void each_block(BlocksOfPeers& side, const Visit& visit) {
  for (auto& [peer, blocks] : side)
    for (SideBlock& block : blocks) visit(block);
}

/// Has offsets count from the first element that moves.
void set_start(MessageSide& side) {
  Index lowest = std::numeric_limits<Index>::max();
  each_block(side.blocks, [&](const SideBlock& block) {
    Index first = block.offset;
    for (const auto& [count, stride] : block.loops) first += std::min<Index>(0, (count - 1) * stride);
    lowest = std::min(lowest, first);
  });
  each_block(side.blocks, [&](SideBlock& block) { block.offset -= lowest; });
  if (!side.packed && lowest != std::numeric_limits<Index>::max()) side.start = lowest * side.unit_bytes;
}

/// The largest element that all numbers of a rank are multiples of.
Index common_element(MessageSides& sides) {
  Index element = sides.max_element;
  for (MessageSide* const side : {&sides.source, &sides.target})
    each_block(side->blocks, [&](const SideBlock& block) {
      element = std::gcd(element, std::gcd(block.offset, block.loops.back().count));
      for (std::size_t loop = 0; loop + 1 < block.loops.size(); ++loop)
        element = std::gcd(element, block.loops[loop].stride);
    });
  return element;
}

void count_elements(std::vector<SideBlock>& blocks, Index element) {
  for (SideBlock& block : blocks) {
    block.offset /= element;
    for (auto& [count, stride] : block.loops) stride /= element;
    block.loops.back() = {block.loops.back().count / element, 1};
  }
}

Index count_of(const std::vector<SideBlock>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), Index{0},
                         [](Index sum, const SideBlock& block) { return sum + block.count(); });
}

}  // namespace

ExchangedSides::ExchangedSides(Context& context, const std::function<MessageSides()>& describe)
    : rank_(context.rank()) {
  constexpr int header_words = sizeof(Header) / sizeof(Index);
  const MPI_Comm comm = context.comm();
  all_or_none(comm, [&] {
    mine_ = describe();
    to_.resize(static_cast<std::size_t>(context.size()));
    from_.resize(to_.size());
    write();
  });
  check(MPI_Alltoall(to_.data(), header_words, MPI_INT64_T, from_.data(), header_words, MPI_INT64_T, comm),
        "MPI_Alltoall");
  all_or_none(comm, [&] {
    for (std::size_t peer = 0; peer < from_.size(); ++peer)
      if (from_[peer].words > 0) in_[static_cast<int>(peer)].resize(static_cast<std::size_t>(from_[peer].words));
  });
  exchange(comm, context.tag(context.next_plan()));
}

void ExchangedSides::write() {
  for (MessageSide* const side : {&mine_.source, &mine_.target}) {
    set_start(*side);
    for (const auto& entry : side->blocks) out_[entry.first];
  }
  const Index element = mine_.max_element > 1 ? common_element(mine_) : 1;
  for (Header& header : to_) header.element = element;
  for (auto& [peer, words] : out_) {
    append(words, mine_.source.blocks, peer);
    append(words, mine_.target.blocks, peer);
    to_[static_cast<std::size_t>(peer)].words = static_cast<Index>(words.size());
  }
}

void ExchangedSides::exchange(MPI_Comm comm, int tag) {
  std::vector<MPI_Request> requests;
  const auto length = [](const Words& words) { return static_cast<int>(words.size()); };
  for (auto& [peer, words] : in_)
    check(MPI_Irecv(words.data(), length(words), MPI_INT64_T, peer, tag, comm, &requests.emplace_back()), "MPI_Irecv");
  for (auto& [peer, words] : out_)
    check(MPI_Isend(words.data(), length(words), MPI_INT64_T, peer, tag, comm, &requests.emplace_back()), "MPI_Isend");
  check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

GivenMessages ExchangedSides::match() const {
  GivenMessages made;
  made.source = {{}, mine_.source.unit_bytes, mine_.source.packed, mine_.source.start};
  made.target = {{}, mine_.target.unit_bytes, mine_.target.packed, mine_.target.start};
  made.element = std::accumulate(from_.begin(), from_.end(), Index{0},
                                 [](Index common, const Header& header) { return std::gcd(common, header.element); });
  made.schedule.self.peer = rank_;
  std::map<int, const Words*> peers;
  for (const auto& [peer, words] : out_) peers[peer] = nullptr;
  for (const auto& [peer, words] : in_) peers[peer] = &words;
  const auto mine = [](const BlocksOfPeers& side, int peer) {
    const auto found = side.find(peer);
    return found == side.end() ? std::vector<SideBlock>() : found->second;
  };
  for (const auto& [peer, words] : peers) {
    std::vector<SideBlock> sent_to_me, received_from_me;
    if (words) {
      auto word = words->begin();
      sent_to_me = take(word);
      received_from_me = take(word);
    }
    Message sent = message(rank_, peer, mine(mine_.source.blocks, peer), received_from_me, made.element);
    Message received = message(peer, rank_, sent_to_me, mine(mine_.target.blocks, peer), made.element);
    sent.peer = received.peer = peer;
    if (peer == rank_) {
      made.schedule.self = std::move(sent);
      continue;
    }
    if (sent.count > 0) made.schedule.sends.push_back(std::move(sent));
    if (received.count > 0) made.schedule.receives.push_back(std::move(received));
  }
  return made;
}

/// One of the rank's messages, and its blocks.
Message ExchangedSides::message(int source, int target, const std::vector<SideBlock>& sent,
                                const std::vector<SideBlock>& received, Index element) const {
  const char* const counted = mine_.max_element > 1 ? "bytes" : "elements";
  const Index sends = count_of(sent), receives = count_of(received);
  if (sends != receives)
    throw Error(text("rank ", source, " sends ", sends, " ", counted, " to rank ", target, ", which receives ",
                     receives, ": both ranks must describe equally many"));
  for (const SideBlock& block : received)
    for (const auto& [count, stride] : block.loops)
      if (count > 1 && stride == 0)
        throw Error(text("rank ", target, " receives several ", counted, " from rank ", source,
                         " in one place: a stride of what is received is 0"));
  std::array<std::vector<SideBlock>, 2> sides{sent, received};
  if (element > 1)
    for (std::vector<SideBlock>& side : sides) count_elements(side, element);
  Message message;
  message.count = sends / element;
  message.blocks = refine(sides[0], sides[1]);
  return message;
}

}  // namespace dace_redist
