// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Strategy Datatype: MPI's derived datatypes gather and scatter the elements.
/// Source: Lundwall et al., Accelerating Redistribution of Tensors, section 3 (there with blocking receives).

#include <vector>

#include "plan/plan.hpp"

namespace dace_redist {

/// An MPI type of `nbytes` contiguous bytes.
inline Datatype contiguous_type(Index nbytes) {
  Datatype type;
  check(MPI_Type_contiguous(static_cast<int>(nbytes), MPI_BYTE, type.put()), "MPI_Type_contiguous");
  return type;
}

/// The MPI type of a block of a local array, given as the source side of `block`. Its elements come in the order of the
/// message, whatever the order of the strides.
inline Datatype strided_type(const StridedBlock& block, Index element_bytes) {
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

/// Sends and receives with one derived datatype per message, receives posted first, everything non-blocking. A side on
/// which elements are computed with, which MPI cannot do, packs or unpacks them instead.
class DatatypePlan : public Plan {
 protected:
  void prepare() override {
    Index nbytes = 0;
    sends_ = typed(sends_in_order(), true, nbytes);
    receives_ = typed(receives_in_order(), false, nbytes);
    buffer_ = Buffer(nbytes);
    requests_.clear();
    requests_.reserve(sends_.size() + receives_.size());
  }

  void exchange(const char* source, char* target) override {
    begin(source, target);
    wait_all(requests_);
    finish();
  }

  void begin(const char* source, char* target) override {
    post_messages(source, target);
    copy_self(source, target);
  }

  bool advance() override {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (!done) return false;
    requests_.clear();
    finish();
    return true;
  }

  void post_messages(const char* source, char* target) {
    target_ = target;
    for (const TypedMessage& message : receives_) {
      const bool packed = steps().unpack().kernel;
      char* const bytes = packed ? buffer_.at(message.buffer_offset) : target;
      check(MPI_Irecv(bytes, message.count(), message.unit(), message.peer, tag, comm(), &requests_.emplace_back()),
            "MPI_Irecv");
    }
    for (const TypedMessage& message : sends_) {
      const bool packed = steps().pack().kernel;
      if (packed) message.chunk.pack(source, buffer_.at(message.buffer_offset));
      const char* const bytes = packed ? buffer_.at(message.buffer_offset) : source;
      const trace::Span span("send", message.peer);
      check(MPI_Isend(bytes, message.count(), message.unit(), message.peer, tag, comm(), &requests_.emplace_back()),
            "MPI_Isend");
    }
  }

 private:
  /// One of both: a type, or a chunk in the buffer, which goes as one message as the other side's type does.
  struct TypedMessage {
    int peer;
    Datatype type;
    PackedChunk chunk;
    Index buffer_offset = 0;

    int count() const { return chunk.nbytes > 0 ? static_cast<int>(chunk.nbytes) : 1; }
    MPI_Datatype unit() const { return chunk.nbytes > 0 ? MPI_BYTE : type.get(); }
  };

  void finish() const {
    if (steps().unpack().kernel)
      for (const TypedMessage& message : receives_) message.chunk.unpack(buffer_.at(message.buffer_offset), target_);
  }

  /// One type per message, or per part of `max_message_bytes` where a message is longer. Chunks take room in the
  /// buffer, of which `nbytes` are taken before.
  std::vector<TypedMessage> typed(const std::vector<Message>& messages, bool send, Index& nbytes) const {
    const bool computes = (send ? steps().pack() : steps().unpack()).kernel;
    std::vector<TypedMessage> list;
    for (const Message& message : messages)
      for (const Chunk& chunk : cut(message, options().max_message_bytes / steps().message_bytes())) {
        TypedMessage& made = list.emplace_back();
        made.peer = static_cast<int>(message.peer);
        if (computes) {
          made.chunk = send ? pack_plan(chunk, steps()) : unpack_plan(chunk, steps());
          made.buffer_offset = nbytes;
          nbytes += ceil_div(made.chunk.nbytes, 64) * 64;
        } else {
          made.type = chunk_type(chunk, send);
        }
      }
    return list;
  }

  Datatype chunk_type(const Chunk& chunk, bool send) const {
    std::vector<Datatype> owned;
    std::vector<MPI_Datatype> types;
    std::vector<MPI_Aint> displacements;
    for (const StridedBlock& block : chunk.blocks) {
      const StridedBlock here = send ? block : reversed(block);
      owned.push_back(strided_type(here, steps().message_bytes()));
      types.push_back(owned.back().get());
      displacements.push_back(static_cast<MPI_Aint>(here.source_offset * steps().message_bytes()));
    }
    const std::vector<int> ones(types.size(), 1);
    Datatype type;
    check(MPI_Type_create_struct(static_cast<int>(types.size()), ones.data(), displacements.data(), types.data(),
                                 type.put()),
          "MPI_Type_create_struct");
    check(MPI_Type_commit(type.put()), "MPI_Type_commit");
    return type;
  }

  std::vector<TypedMessage> sends_, receives_;
  Buffer buffer_;
  char* target_ = nullptr;  // of the exchange at hand
  std::vector<MPI_Request> requests_;
};

}  // namespace dace_redist
