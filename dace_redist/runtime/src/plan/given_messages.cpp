// SPDX-License-Identifier: BSD-3-Clause
#include "plan/given_messages.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "core/agreement.hpp"

namespace dace_redist {
namespace {

using Words = std::vector<Index>;

const std::vector<SideBlock>& blocks_of(const MessageSide& side, int peer) {
  static const std::vector<SideBlock> none;
  const auto found = side.blocks.find(peer);
  return found == side.blocks.end() ? none : found->second;
}

void append(Words& words, const std::vector<SideBlock>& blocks) {
  words.push_back(static_cast<Index>(blocks.size()));
  for (const SideBlock& block : blocks) {
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

void check_count(std::size_t words) {
  if (words > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw Error("the messages have too many blocks for MPI to tell the other ranks");
}

/// Has offsets count from the first element that moves.
void set_start(MessageSide& side) {
  constexpr Index nothing = std::numeric_limits<Index>::max();
  Index lowest = nothing;
  for (const auto& [peer, blocks] : side.blocks)
    for (const SideBlock& block : blocks) {
      Index first = block.offset;
      for (const auto& [count, stride] : block.loops) first += std::min<Index>(0, (count - 1) * stride);
      lowest = std::min(lowest, first);
    }
  for (auto& [peer, blocks] : side.blocks)
    for (SideBlock& block : blocks) block.offset -= lowest;
  if (!side.packed && lowest != nothing) side.start = lowest * side.unit_bytes;
}

Index count_of(const std::vector<SideBlock>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), Index{0},
                         [](Index sum, const SideBlock& block) { return sum + block.count(); });
}

Message message(int source, int target, const std::vector<SideBlock>& sent, const std::vector<SideBlock>& received,
                const char* counted) {
  Message message;
  message.count = count_of(sent);
  const Index receives = count_of(received);
  if (message.count != receives)
    throw Error(text("rank ", source, " sends ", message.count, " ", counted, " to rank ", target, ", which receives ",
                     receives, ": both ranks must describe equally many"));
  for (const SideBlock& block : received)
    for (const auto& [count, stride] : block.loops)
      if (count > 1 && stride == 0)
        throw Error(text("rank ", target, " receives several ", counted, " from rank ", source,
                         " in one place: a stride of what is received is 0"));
  message.blocks = refine(sent, received);
  return message;
}

/// Displacements may be addresses, from MPI_BOTTOM on, which is null.
void* displaced(const void* array, Index displacement) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(array) + static_cast<std::uintptr_t>(displacement));
}

void check_position(int position, Index nbytes) {
  if (position != nbytes)
    throw Error(text("MPI packs ", nbytes, " bytes to ", position, ": its packed messages have headers"));
}

}  // namespace

PackedSide::PackedSide(std::vector<TypedPart> parts, Index nbytes, MPI_Comm comm)
    : parts_(std::move(parts)), comm_(comm) {
  for (const TypedPart& part : parts_)
    if (part.nbytes > std::numeric_limits<int>::max())
      throw Error(text("MPI packs messages of at most ", std::numeric_limits<int>::max(), " bytes, got ", part.nbytes,
                       " of a datatype that is not understood: use several types, of fewer elements"));
  buffer_ = static_cast<char*>(allocate_array(static_cast<std::size_t>(nbytes), false, 0));
  if (!buffer_) throw std::bad_alloc();
}

void PackedSide::pack() const {
  for (const TypedPart& part : parts_) {
    int position = 0;
    check(MPI_Pack(displaced(array_, part.displacement), part.count, part.type.get(), buffer_ + part.offset,
                   static_cast<int>(part.nbytes), &position, comm_),
          "MPI_Pack");
    check_position(position, part.nbytes);
  }
}

void PackedSide::unpack() const {
  for (const TypedPart& part : parts_) {
    int position = 0;
    check(MPI_Unpack(buffer_ + part.offset, static_cast<int>(part.nbytes), &position,
                     displaced(array_, part.displacement), part.count, part.type.get(), comm_),
          "MPI_Unpack");
    check_position(position, part.nbytes);
  }
}

ExchangedSides::ExchangedSides(Context& context, const std::function<MessageSides()>& describe)
    : rank_(context.rank()) {
  const MPI_Comm comm = context.comm();
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  complete(request, context.size(), context.operation("a plan", "", context.plans()));
  WordsOfRanks mine;
  all_or_none(comm, [&] {
    mine_ = describe();
    set_start(mine_.source);
    set_start(mine_.target);
    for (int peer = 0; peer < context.size(); ++peer) {
      mine.begins.push_back(static_cast<int>(mine.words.size()));
      append(mine.words, blocks_of(mine_.source, peer));
      append(mine.words, blocks_of(mine_.target, peer));
      check_count(mine.words.size());
      mine.counts.push_back(static_cast<int>(mine.words.size()) - mine.begins.back());
    }
    theirs_.counts.resize(mine.counts.size());
    theirs_.begins.resize(mine.counts.size());
  });
  check(MPI_Alltoall(mine.counts.data(), 1, MPI_INT, theirs_.counts.data(), 1, MPI_INT, comm), "MPI_Alltoall");
  all_or_none(comm, [&] {
    check_count(std::accumulate(theirs_.counts.begin(), theirs_.counts.end(), std::size_t{0}));
    std::exclusive_scan(theirs_.counts.begin(), theirs_.counts.end(), theirs_.begins.begin(), 0);
    theirs_.words.resize(static_cast<std::size_t>(theirs_.begins.back() + theirs_.counts.back()));
  });
  check(MPI_Alltoallv(mine.words.data(), mine.counts.data(), mine.begins.data(), MPI_INT64_T, theirs_.words.data(),
                      theirs_.counts.data(), theirs_.begins.data(), MPI_INT64_T, comm),
        "MPI_Alltoallv");
}

GivenMessages ExchangedSides::match() const {
  GivenMessages made;
  made.source = {{}, mine_.source.unit_bytes, mine_.source.packed, mine_.source.start};
  made.target = {{}, mine_.target.unit_bytes, mine_.target.packed, mine_.target.start};
  made.schedule.self.peer = rank_;
  for (int peer = 0; peer < static_cast<int>(theirs_.begins.size()); ++peer) {
    auto word = theirs_.words.begin() + theirs_.begins[static_cast<std::size_t>(peer)];
    const std::vector<SideBlock> sent_to_me = take(word), received_from_me = take(word);
    Message sent = message(rank_, peer, blocks_of(mine_.source, peer), received_from_me, mine_.counted);
    Message received = message(peer, rank_, sent_to_me, blocks_of(mine_.target, peer), mine_.counted);
    sent.peer = received.peer = peer;
    if (peer == rank_)
      made.schedule.self = std::move(sent);
    else if (sent.count > 0)
      made.schedule.sends.push_back(std::move(sent));
    if (peer != rank_ && received.count > 0) made.schedule.receives.push_back(std::move(received));
  }
  return made;
}

}  // namespace dace_redist
