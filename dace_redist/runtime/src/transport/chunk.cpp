// SPDX-License-Identifier: BSD-3-Clause
#include "transport/chunk.hpp"

#include <algorithm>

#include "trace/trace.hpp"

namespace dace_redist {
namespace {

Datatype contiguous_type(Index nbytes) {
  Datatype type;
  check(MPI_Type_contiguous(static_cast<int>(nbytes), MPI_BYTE, type.put()), "MPI_Type_contiguous");
  return type;
}

/// The MPI type of a block, given as the source side of `block`. Its elements come in the order of the message,
/// whatever the order of the strides.
Datatype strided_type(const StridedBlock& block, Index element_bytes) {
  const StridedBlock nest = merged(to_packed(block, 0));
  std::size_t d = static_cast<std::size_t>(nest.ndim);
  const bool run = d > 0 && nest.source_strides[d - 1] == 1;
  Datatype type = contiguous_type(element_bytes * (run ? nest.counts[--d] : 1));
  while (d-- > 0) {
    Datatype outer;
    check(
        MPI_Type_create_hvector(static_cast<int>(nest.counts[d]), 1,
                                static_cast<MPI_Aint>(nest.source_strides[d] * element_bytes), type.get(), outer.put()),
        "MPI_Type_create_hvector");
    type = std::move(outer);
  }
  return type;
}

/// Whether a stride is negative: Open MPI (4.1.4) takes bytes of stride -1 in ascending order. Only blocks that a
/// program gives do so.
bool runs_backward(const StridedBlock& block) {
  return std::any_of(block.source_strides.begin(), block.source_strides.begin() + block.ndim,
                     [](Index stride) { return stride < 0; });
}

}  // namespace

Chunk::Chunk(const PeerMessage& message, MessageCutter& cutter, const Tensors& tensors, Side side, Index max_bytes,
             bool typed)
    : peer_(message.peer) {
  bool contiguous = false, computes = false, partner_computes = false, backward = false;
  std::size_t blocks = 0;
  nbytes_ = cutter.take(max_bytes, [&](Index displacement) {
    const int t = cutter.tensor();
    const Tensor& tensor = *tensors[static_cast<std::size_t>(t)];
    const ElementSteps& steps = tensor.steps_of(message).steps;
    const ElementStep step = side == Side::sent       ? steps.pack()
                             : side == Side::received ? tensor.unpack_step(message)
                                                      : tensor.direct_step(message);
    if (sections_.empty() || sections_.back().tensor != t)
      sections_.push_back({t, steps.message_bytes(), displacement, {}, {}});
    Section& section = sections_.back();
    const Index before = (displacement - section.offset) / section.element_bytes;
    const StridedBlock moved = packed_side(side, cutter.part(), before);
    if (typed) section.typed_blocks.push_back(side == Side::sent ? cutter.part() : reversed(cutter.part()));
    if (typed) backward = backward || runs_backward(section.typed_blocks.back());
    contiguous = section.copies.append(moved, step);
    computes = computes || step.kernel;
    partner_computes = partner_computes || (side == Side::sent ? steps.unpack() : steps.pack()).kernel != nullptr;
    array_offset_ = (side == Side::sent ? moved.source_offset : moved.target_offset) * section.element_bytes;
    ++blocks;
  });
  in_place_ = contiguous && blocks == 1;
  // between several tensors, packed messages have gaps and typed ones have none: both ranks must choose alike
  typed_ = typed && !in_place_ && !computes && !backward && (sections_.size() == 1 || !partner_computes);
  if (typed_ && sections_.size() == 1) make_type({0});
}

/// Describes all blocks by one type, relative to the array of the first section.
void Chunk::make_type(std::vector<MPI_Aint> distances) {
  std::vector<Datatype> owned;
  std::vector<MPI_Datatype> types;
  std::vector<MPI_Aint> displacements;
  for (std::size_t s = 0; s < sections_.size(); ++s)
    for (const StridedBlock& block : sections_[s].typed_blocks) {
      types.push_back(owned.emplace_back(strided_type(block, sections_[s].element_bytes)).get());
      displacements.push_back(distances[s] + static_cast<MPI_Aint>(block.source_offset * sections_[s].element_bytes));
    }
  const std::vector<int> ones(types.size(), 1);
  Datatype type;
  check(MPI_Type_create_struct(static_cast<int>(types.size()), ones.data(), displacements.data(), types.data(),
                               type.put()),
        "MPI_Type_create_struct");
  check(MPI_Type_commit(type.put()), "MPI_Type_commit");
  type_ = std::move(type);
  distances_ = std::move(distances);
}

MPI_Datatype Chunk::datatype(const char* const* bases) {
  if (sections_.size() == 1) return type_.get();
  std::vector<MPI_Aint> distances;
  for (const Section& section : sections_)
    distances.push_back(reinterpret_cast<MPI_Aint>(bases[section.tensor]) -
                        reinterpret_cast<MPI_Aint>(bases[sections_[0].tensor]));
  if (distances != distances_) make_type(std::move(distances));
  return type_.get();
}

template <class Byte>
Chunk::Place<Byte> Chunk::place(Byte* const* bases, Byte* packed) {
  Byte* const array = bases[sections_[0].tensor];
  if (typed_) return {array, 1, datatype(bases)};
  return {in_place_ ? array + array_offset_ : packed, static_cast<int>(nbytes_), MPI_BYTE};
}

void Chunk::pack(const Arrays& arrays, char* packed, int threads) const {
  const trace::Span span("pack", peer_, nbytes_);
  for (const Section& section : sections_)
    copy_threaded(section.copies, arrays.sources[section.tensor], packed + section.offset, threads);
}

void Chunk::unpack(const char* packed, const Arrays& arrays, int threads) const {
  const trace::Span span("unpack", peer_, nbytes_);
  for (const Section& section : sections_)
    copy_threaded(section.copies, packed + section.offset, arrays.targets[section.tensor], threads);
}

void Chunk::copy(const Arrays& arrays, int threads) const {
  const trace::Span span("copy", trace::no_peer, nbytes_);
  for (const Section& section : sections_)
    copy_threaded(section.copies, arrays.sources[section.tensor], arrays.targets[section.tensor], threads);
}

void Chunk::send(const Arrays& arrays, const char* packed, int tag, MPI_Comm comm, MPI_Request* request) {
  const trace::Span span("send", peer_, nbytes_);
  const auto [start, count, type] = place(arrays.sources, packed);
  check(MPI_Isend(start, count, type, peer_, tag, comm, request), "MPI_Isend");
}

void Chunk::receive(const Arrays& arrays, char* packed, int tag, MPI_Comm comm, MPI_Request* request) {
  const auto [start, count, type] = place(arrays.targets, packed);
  check(MPI_Irecv(start, count, type, peer_, tag, comm, request), "MPI_Irecv");
}

StridedBlock packed_side(Chunk::Side side, const StridedBlock& part, Index displacement) {
  return side == Chunk::Side::sent       ? to_packed(part, displacement)
         : side == Chunk::Side::received ? from_packed(part, displacement)
                                         : part;
}

void each_chunk(const PeerMessage& message, const Tensors& tensors, Index max_bytes, double growth,
                const std::function<void(MessageCutter&, Index)>& make) {
  const Index first = growth > 1.0 ? std::max<Index>(1, max_bytes / 16) : max_bytes;
  double size = static_cast<double>(first);
  for (MessageCutter cutter(message, tensors, first); !cutter.done();) {
    make(cutter, static_cast<Index>(size));
    size = std::min(size * growth, static_cast<double>(max_bytes));
  }
}

std::vector<Chunk> cut(const PeerMessage& message, const Tensors& tensors, Chunk::Side side, Index max_bytes,
                       double growth, bool typed) {
  std::vector<Chunk> chunks;
  each_chunk(message, tensors, max_bytes, growth, [&](MessageCutter& cutter, Index nbytes) {
    chunks.emplace_back(message, cutter, tensors, side, nbytes, typed);
  });
  return chunks;
}

}  // namespace dace_redist
