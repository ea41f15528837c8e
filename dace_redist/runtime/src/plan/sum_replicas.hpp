// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Adds partial sums: every replica of the source holds one, the target gets their sum.
/// Start reading at: SumReplicasPlan.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "copy/run_list.hpp"
#include "node/node_sum.hpp"
#include "plan/plan.hpp"

namespace dace_redist {

/// What depends on the type of the elements.
struct SummedType {
  MPI_Datatype mpi_type;
  ElementType element;
};

/// \param strategy  "SumReplicas " and the name of the type. \throws Error if there is no such type.
SummedType summed_type(const std::string& strategy);

/// Sums what the ranks of a replica group (those that hold the same cell of the source) hold, element by element.
///
/// In the target the members of a group share the cell: each owns a box of it, no element is owned twice, and together
/// they own all of it (a reduce-scatter; with a single owner a reduce); or each of them owns all of it (an allreduce).
///
/// Members that share a node, and whose partial sums lie in node-shared memory, read them there; else MPI adds.
class SumReplicasPlan final : public Plan {
 private:
  void prepare() override {
    type_ = summed_type(description().strategy);
    ElementOperation sum;
    sum.source = sum.target = type_.element;
    sum.reduction = Reduction::sum;
    addition_.set(sum, element_bytes_of(type_.element));
    const Distribution source(description().source, "source"), target(description().target, "target");
    pieces_.clear();
    buffer_ = Buffer();
    const std::vector<Cell> mine = source.cells(rank()), wanted = target.cells(rank());
    if (mine.empty() && !wanted.empty() && checked_product(target.cell_shape(wanted.front()), "cell") > 0)
      throw Error(text("rank ", rank(), " owns a part of the target but holds no partial sums"));
    if (mine.empty()) return;
    if (mine.size() > 1 || wanted.size() > 1) throw Error("partial sums cannot be added in tiles");
    shape_ = source.cell_shape(mine.front());
    group_ = source.rank_of(mine.front().coordinates, 0);
    for (Index replica = 0; replica < source.replicas(); ++replica) {
      const Index member = source.rank_of(mine.front().coordinates, replica);
      if (member == rank()) replica_ = static_cast<int>(replica);
      pieces_.push_back(piece(source, mine.front(), target, member));
    }
    check_pieces(target);
    if (!wanted.empty()) check_contiguous(target.cell_shape(wanted.front()));
    lay_out();
  }

  void connect() override {
    const int color = pieces_.empty() ? MPI_UNDEFINED : static_cast<int>(group_);
    check(MPI_Comm_split(comm(), color, replica_, members_.put()), "MPI_Comm_split");
    if (!pieces_.empty()) check(MPI_Comm_set_errhandler(members_.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    const bool here = !pieces_.empty() && is_for_node();
    if (!works_on_node([&] {
          if (here) node_.allocate();
        }))
      return;
    std::vector<SegmentEndpoint> endpoints(pieces_.size());
    if (here) {
      const SegmentEndpoint mine = node_.endpoint();
      check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, endpoints.data(), sizeof mine, MPI_BYTE, members_.get()),
            "MPI_Allgather");
    }
    const bool connected = works_on_node([&] {
      if (here) node_.connect(endpoints, replica_, comm());
    });
    if (!connected) node_.disconnect();
  }

  /// Whether all members share a node, adding takes longer than waiting for the others, and none would add far more
  /// than its share.
  bool is_for_node() const {
    const bool one_node = comm_size(node_communicator(members_.get()).get()) == static_cast<int>(pieces_.size());
    return one_node && count_ * element_bytes() >= least_node_bytes &&
           (!everyone_ || pieces_.size() <= most_adding_all);
  }

  void exchange(const char* source, char* target) override {
    if (pieces_.empty() || count_ == 0) return;
    const trace::Span span("sum", trace::no_peer, count_ * element_bytes());
    if (node_.connected() &&
        node_.add(pieces_[static_cast<std::size_t>(replica_)], source_layout(), addition_, source, target))
      return;
    const char* sums = source;
    if (!in_order_) {
      packing_.copy(source, buffer_.at(0));
      sums = buffer_.at(0);
    }
    if (everyone_) return add_for_all(sums, target);
    if (owners_ > 1 && count_ <= std::numeric_limits<int>::max()) {
      check(MPI_Reduce_scatter(sums, target, counts_.data(), type_.mpi_type, MPI_SUM, members_.get()),
            "MPI_Reduce_scatter");
      return;
    }
    for (std::size_t member = 0; member < pieces_.size(); ++member) {
      add_for_one(sums, target, pieces_[member].count(), static_cast<int>(member));
      sums += pieces_[member].count() * element_bytes();
    }
  }

  /// What a member owns of this rank's cell, as a block of this rank's array.
  StridedBlock piece(const Distribution& source, const Cell& cell, const Distribution& target, Index member) const {
    const std::vector<Cell> owned = target.cells(member);
    StridedBlock block;
    block.ndim = source.ndim();
    if (owned.empty()) block.ndim = std::max(block.ndim, 1);  // a block of no dimensions is one element
    for (int axis = 0; axis < source.ndim(); ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      block.source_strides[at] = source_layout().strides[at];
      if (owned.empty()) continue;  // counts stay zero
      const Intervals all = source.intervals(cell, axis), part = target.intervals(owned.front(), axis);
      block.counts[at] = part.size();
      if (part.empty()) continue;
      if (all.count != 1 || part.count != 1 || part.start < all.start || part.end > all.end)
        throw Error(text("rank ", member, " owns [", part.start, ", ", part.end, ") of the target in dimension ", axis,
                         ", but its partial sums are [", all.start, ", ", all.end, ")"));
      block.source_offset += (part.start - all.start) * source_layout().strides[at];
    }
    return block;
  }

  void check_pieces(const Distribution& target) {
    const Index cell_count = checked_product(shape_, "cell");
    Index owned = 0;
    everyone_ = true;
    owners_ = 0;
    for (const StridedBlock& block : pieces_) {
      owned += block.count();
      owners_ += block.count() > 0;
      everyone_ = everyone_ && block.count() == cell_count;
    }
    if (!everyone_ && (owned != cell_count || target.replicas() != 1))
      throw Error(text("the target must hold each of the ", cell_count, " sums of a group once, or all on each of its ",
                       pieces_.size(), " ranks; it holds ", owned));
    count_ = cell_count;
  }

  void check_contiguous(const std::vector<Index>& shape) const {
    if (checked_product(shape, "cell") == 0) return;  // nothing to write, whatever the strides
    const std::vector<Index> expected = c_strides(shape);
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] > 1 && target_layout().strides[axis] != expected[axis])
        throw Error(text("the target array must be contiguous, shape ", tuple_text(shape), ", but has strides ",
                         tuple_text(target_layout().strides)));
  }

  /// Where the pieces lie one after another: in the source itself, or packed.
  void lay_out() {
    packing_.clear();
    counts_.clear();
    in_order_ = true;
    Index displacement = 0;
    for (const StridedBlock& block : pieces_) {
      if (everyone_ && displacement > 0) break;
      const CopyBlock packed = make_copy_block(to_packed(block, displacement), element_bytes());
      const bool in_place = packed.contiguous() && packed.source_offset == packed.target_offset;
      in_order_ = in_order_ && (block.count() == 0 || in_place);
      packing_.append(packed);
      counts_.push_back(static_cast<int>(std::min<Index>(block.count(), std::numeric_limits<int>::max())));
      displacement += block.count();
    }
    if (!in_order_) buffer_ = Buffer(count_ * element_bytes());
  }

  static constexpr Index least_node_bytes = Index{64} << 10;  // below, ranks wait for each other longer than they add
  static constexpr std::size_t most_adding_all = 4;
  static constexpr Index most_at_once = Index{1} << 30;  // elements; MPI counts in int

  void add_for_all(const char* sums, char* result) {
    for (Index at = 0; at < count_; at += most_at_once)
      check(
          MPI_Allreduce(sums + at * element_bytes(), result + at * element_bytes(),
                        static_cast<int>(std::min(most_at_once, count_ - at)), type_.mpi_type, MPI_SUM, members_.get()),
          "MPI_Allreduce");
  }

  void add_for_one(const char* sums, char* result, Index count, int member) {
    for (Index at = 0; at < count; at += most_at_once)
      check(MPI_Reduce(sums + at * element_bytes(), result + at * element_bytes(),
                       static_cast<int>(std::min(most_at_once, count - at)), type_.mpi_type, MPI_SUM, member,
                       members_.get()),
            "MPI_Reduce");
  }

  SummedType type_{};
  ReductionSteps addition_;
  NodeSum node_;
  Communicator members_;              // the ranks of this rank's group, by number of their replica
  std::vector<StridedBlock> pieces_;  // [members] of this rank's array; empty if the rank holds no partial sums
  std::vector<Index> shape_;          // of this rank's cell
  Index group_ = 0, count_ = 0;       // first rank of the group; elements of the cell
  int replica_ = 0, owners_ = 0;      // this rank's replica; members that own something
  bool everyone_ = false, in_order_ = true;
  CopyList packing_;
  std::vector<int> counts_;  // [members] elements
  Buffer buffer_;
};

}  // namespace dace_redist
