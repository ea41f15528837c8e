// SPDX-License-Identifier: BSD-3-Clause
#include "layout/schedule.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace dace_redist {

namespace {

/// The axis along which the replicas of a cell share it: the slowest one that is long enough.
int share_axis(const Distribution& distribution) {
  const std::vector<Index> shape = distribution.local_shape(distribution.first_rank());
  const auto long_enough =
      std::find_if(shape.begin(), shape.end(), [&](Index extent) { return extent >= distribution.replicas(); });
  return static_cast<int>((long_enough == shape.end() ? std::max_element(shape.begin(), shape.end()) : long_enough) -
                          shape.begin());
}

/// What a cell shares, along one axis, with one coordinate of the other distribution.
struct AxisOverlap {
  Index coordinate = 0, count = 0;
  std::vector<Piece> pieces;
};

/// A part of a message: what one source cell and one target cell share.
struct CellPair {
  Index peer = 0, source_cell = 0, target_cell = 0, count = 0;
  Index turn = 0;  // of the sender
  std::vector<StridedBlock> blocks;
};

/// Where a cell lies in its rank's local array.
struct CellLayout {
  Index offset = 0;
  std::vector<Index> strides;
};

CellLayout cell_layout(const Distribution& distribution, const Cell& cell, const LocalLayout& local) {
  CellLayout layout{distribution.cell_offset(cell), c_strides(distribution.cell_shape(cell))};
  if (local.strides.empty()) return layout;
  if (!distribution.tiled()) return {0, local.strides};
  layout.offset *= local.strides[0];
  for (Index& stride : layout.strides) stride *= local.strides[0];
  return layout;
}

void append_dimension(StridedBlock& block, Index count, Index source_stride, Index target_stride) {
  if (count == 1) return;
  if (block.ndim == max_block_dims) throw Error(text("a message needs more than ", max_block_dims, " nested loops"));
  const std::size_t at = static_cast<std::size_t>(block.ndim++);
  block.counts[at] = count;
  block.source_strides[at] = source_stride;
  block.target_strides[at] = target_stride;
}

/// Two source axes whose runs a message holds tile by tile, because one is the fastest of the source, the other that of
/// the target: whoever reads or writes an array then does so in stretches of a tile's row. None: axes -1.
struct TiledAxes {
  int rows = -1, columns = -1;  // the fastest of the target, and of the source

  bool has(int axis) const { return axis == rows || axis == columns; }
  /// Elements of a tile along one of the two; runs of twice as many are cut. Tiles are longer along the source's, since
  /// short stretches cost more to read than to write.
  Index extent(int axis) const { return axis == rows ? 64 : 256; }
  /// Whether the run of a piece of this axis is cut into tiles.
  bool cuts(int axis, const Piece& piece) const { return has(axis) && piece.counts[2] % extent(axis) == 0; }
};

/// Cuts long runs in two: whole tiles of `extent` elements, and the rest.
std::vector<Piece> cut_runs(const std::vector<Piece>& pieces, Index extent) {
  std::vector<Piece> cut;
  for (const Piece& piece : pieces) {
    const Index run = piece.counts[2], whole = run < 2 * extent ? run : run - run % extent;
    cut.push_back(piece);
    cut.back().counts[2] = whole;
    if (whole == run) continue;
    cut.push_back(piece);
    cut.back().counts[2] = run - whole;
    cut.back().source_offset += whole;
    cut.back().target_offset += whole;
  }
  return cut;
}

/// The box made of one piece per source axis. Its dimensions are in the order of the source axes; rows and columns of
/// tiles come last.
StridedBlock box(const std::vector<const Piece*>& pieces, const CellLayout& source, const CellLayout& target,
                 const IndexMap& map, const TiledAxes& tiled) {
  StridedBlock block;
  block.source_offset = source.offset;
  block.target_offset = target.offset;
  const auto append = [&](int axis, Index count, Index source_stride, Index target_stride) {
    append_dimension(block, count, source_stride * source.strides[static_cast<std::size_t>(axis)],
                     target_stride * target.strides[static_cast<std::size_t>(map.target_axis(axis))]);
  };
  for (int axis = 0; axis < map.ndim(); ++axis) {
    const Piece& piece = *pieces[static_cast<std::size_t>(axis)];
    block.source_offset += piece.source_offset * source.strides[static_cast<std::size_t>(axis)];
    block.target_offset += piece.target_offset * target.strides[static_cast<std::size_t>(map.target_axis(axis))];
    for (std::size_t level = 0; level + 1 < Piece::levels; ++level)
      append(axis, piece.counts[level], piece.source_strides[level], piece.target_strides[level]);
    if (tiled.cuts(axis, piece))
      append(axis, piece.counts[2] / tiled.extent(axis), tiled.extent(axis), tiled.extent(axis));
    else if (!tiled.has(axis))
      append(axis, piece.counts[2], 1, 1);
  }
  for (const int axis : {tiled.rows, tiled.columns})
    if (axis >= 0) {
      const Piece& piece = *pieces[static_cast<std::size_t>(axis)];
      append(axis, tiled.cuts(axis, piece) ? tiled.extent(axis) : piece.counts[2], 1, 1);
    }
  return block;
}

/// Calls `visit(choice)` for every way to choose one entry per list, the last list fastest.
template <class T, class Visit>
void for_each_choice(const std::vector<std::vector<T>>& lists, Visit&& visit) {
  std::vector<const T*> choice;
  std::vector<std::size_t> at(lists.size(), 0);
  for (const auto& list : lists)
    if (list.empty()) return;
  for (;;) {
    choice.clear();
    for (std::size_t i = 0; i < lists.size(); ++i) choice.push_back(&lists[i][at[i]]);
    visit(choice);
    std::size_t i = lists.size();
    while (i > 0 && ++at[i - 1] == lists[i - 1].size()) at[--i] = 0;
    if (i == 0) return;
  }
}

/// Which of the two distributions the rank at hand looks from.
enum class Side { source, target };

/// Collects what one cell of this rank shares with all cells of the other distribution.
class Collector {
 public:
  Collector(const Distribution& source, const Distribution& target, const IndexMap& map, Index rank, Side side,
            const Layouts& source_layouts, const Layouts& target_layouts, bool with_blocks, Senders senders)
      : source_(source),
        target_(target),
        map_(map),
        rank_(rank),
        side_(side),
        source_layouts_(source_layouts),
        target_layouts_(target_layouts),
        with_blocks_(with_blocks),
        senders_(senders) {
    if (senders.kind == Senders::share || senders.to_shares) share_axis_ = share_axis(target);
  }

  void add(const Cell& cell) {
    if (sends() && senders_.kind == Senders::all) source_replica_ = replica_here(source_, cell);
    if (senders_.kind == Senders::share)
      for_each_other_replica(cell, [&](Index own, Index other) { add_share(cell, sends() ? own : other, other); });
    else if (!senders_.to_shares)
      add_all(cell);
    else if (!sends())
      add_share(cell, replica_here(target_, cell), no_replica);
    else
      for (Index replica = 0; replica < target_.replicas(); ++replica) add_share(cell, replica, replica);
  }

  std::vector<CellPair> pairs;

 private:
  static constexpr Index no_replica = -1;

  bool sends() const { return side_ == Side::source; }

  /// Adds what the cell shares with all cells of the other side.
  void add_all(const Cell& cell) {
    std::vector<std::vector<AxisOverlap>> overlaps;
    for (int axis = 0; axis < map_.ndim(); ++axis) overlaps.push_back(axis_overlaps(cell, axis));
    for_each_choice(overlaps, [&](const std::vector<const AxisOverlap*>& choice) { add_cell_pair(cell, choice); });
  }

  /// The same with nothing but a share of each target cell.
  /// \param share  number of the replica of the target whose share it is.
  /// \param peer   number of the replica of the target that is the partner; none: that of the source whose turn it is.
  void add_share(const Cell& cell, Index share, Index peer) {
    share_ = share;
    peer_replica_ = peer;
    add_all(cell);
  }

  /// Calls `visit(own, other)` with the numbers of this rank's replica and of each other one.
  template <class Visit>
  void for_each_other_replica(const Cell& cell, const Visit& visit) const {
    const Index own = replica_here(target_, cell);
    for (Index other = 0; other < target_.replicas(); ++other)
      if (other != own) visit(own, other);
  }

  /// The number of this rank among the replicas of a cell.
  Index replica_here(const Distribution& distribution, const Cell& cell) const {
    Index replica = 0;
    while (distribution.rank_of(cell.coordinates, replica) != rank_) ++replica;
    return replica;
  }

  /// The window of a source axis in which a target cell's share lies.
  IndexMap::Window share_of(const Intervals& target_cell, const IndexMap::Window& moved) const {
    const Index lo = std::max(target_cell.start - moved.shift, moved.lo);
    const Index count = std::max<Index>(0, std::min(target_cell.end - moved.shift, moved.hi) - lo);
    const auto border = [&](Index share) {
      const Index whole = count / target_.replicas(), longer = count % target_.replicas();
      return lo + share * whole + std::min(share, longer);
    };
    return {border(share_), border(share_ + 1), moved.shift};
  }
  const Distribution& mine() const { return sends() ? source_ : target_; }
  const Distribution& other() const { return sends() ? target_ : source_; }

  /// What the cell shares with each coordinate of the other distribution along a source axis.
  std::vector<AxisOverlap> axis_overlaps(const Cell& cell, int axis) const {
    IndexMap::Window moved = map_.window(axis);
    const int target_axis = map_.target_axis(axis), own_axis = sends() ? axis : target_axis;
    const Intervals own = mine().intervals(cell, own_axis);
    const bool shared = target_axis == share_axis_;
    if (shared && !sends()) moved = share_of(own, moved);
    const Index to_other = sends() ? moved.shift : -moved.shift, first = sends() ? moved.lo : moved.lo + moved.shift;
    const AxisSplit& split = other().axes()[static_cast<std::size_t>(sends() ? target_axis : axis)];
    std::vector<AxisOverlap> overlaps;
    for (Index coordinate : overlapping_coordinates(own.shifted(to_other), split, first + to_other,
                                                    first + to_other + moved.hi - moved.lo)) {
      const Intervals theirs = split.intervals(coordinate);
      const IndexMap::Window part = shared && sends() ? share_of(theirs, moved) : moved;
      AxisOverlap overlap{coordinate, 0,
                          sends() ? intersect(own, theirs.shifted(-moved.shift), part.lo, part.hi)
                                  : intersect(theirs, own.shifted(-moved.shift), part.lo, part.hi)};
      if (overlap.pieces.empty()) continue;  // of another share
      for (const Piece& piece : overlap.pieces) overlap.count += piece.counts[0] * piece.counts[1] * piece.counts[2];
      overlaps.push_back(std::move(overlap));
    }
    return overlaps;
  }

  void add_cell_pair(const Cell& cell, const std::vector<const AxisOverlap*>& choice) {
    Cell theirs;
    for (int axis = 0; axis < map_.ndim(); ++axis) {
      const int source_axis = sends() ? map_.source_axis(axis) : axis;
      theirs.coordinates.push_back(choice[static_cast<std::size_t>(source_axis)]->coordinate);
    }
    theirs.number = other().cell_number(theirs.coordinates);
    if (senders_.kind == Senders::share)
      return append(target_.rank_of(cell.coordinates, peer_replica_), cell, theirs, choice);
    if (!sends()) {
      if (senders_.kind != Senders::all)
        return append(sender(theirs.coordinates, cell.coordinates, rank_), cell, theirs, choice);
      const Index first = first_sender(cell.coordinates);
      for (Index turn = 0; turn < source_.replicas(); ++turn)
        append(source_.rank_of(theirs.coordinates, (first + turn) % source_.replicas()), cell, theirs, choice, turn);
      return;
    }
    for (Index replica = 0; replica < target_.replicas(); ++replica) {
      if (senders_.to_shares && replica != peer_replica_) continue;
      const Index receiver = target_.rank_of(theirs.coordinates, replica);
      if (senders_.kind == Senders::all)
        append(receiver, cell, theirs, choice, turn_of(first_sender(theirs.coordinates)));
      else if (sender(cell.coordinates, theirs.coordinates, receiver) == rank_)
        append(receiver, cell, theirs, choice);
    }
  }

  /// The one rank that sends a source cell to a receiver of a target cell.
  Index sender(const std::vector<Index>& source_cell, const std::vector<Index>& target_cell, Index receiver) const {
    if (senders_.kind == Senders::one) return source_.sender(source_cell, receiver);
    return source_.rank_of(source_cell, (first_sender(target_cell) + senders_.number) % source_.replicas());
  }

  /// Number of the replica of the source that has the first turn. All replicas of the target cell get the same turns in
  /// the same order; each share of it begins with another replica of the source.
  Index first_sender(const std::vector<Index>& target_cell) const {
    Index position = senders_.to_shares ? share_ % source_.replicas() : 0;
    for (std::size_t axis = 0; axis < target_cell.size(); ++axis)
      position = (position * target_.axes()[axis].parts + target_cell[axis]) % source_.replicas();
    return position;
  }

  /// The turn of this rank's replica of the source, if that number has the first one.
  Index turn_of(Index first) const { return (source_replica_ - first + source_.replicas()) % source_.replicas(); }

  void append(Index peer, const Cell& own, const Cell& theirs, const std::vector<const AxisOverlap*>& choice,
              Index turn = 0) {
    if (peer == rank_ && !sends()) return;  // a self-copy is listed once, by the source side
    CellPair pair{peer, sends() ? own.number : theirs.number, sends() ? theirs.number : own.number, 1, turn, {}};
    for (const AxisOverlap* overlap : choice) pair.count *= overlap->count;
    if (with_blocks_) append_blocks(pair, own, theirs, choice);
    pairs.push_back(std::move(pair));
  }

  void append_blocks(CellPair& pair, const Cell& own, const Cell& theirs,
                     const std::vector<const AxisOverlap*>& choice) {
    const CellLayout here = cell_layout(mine(), own, layout(sends() ? source_layouts_ : target_layouts_, rank_));
    const CellLayout there =
        cell_layout(other(), theirs, layout(sends() ? target_layouts_ : source_layouts_, pair.peer));
    const TiledAxes tiled = tiled_axes(choice);
    std::vector<std::vector<Piece>> pieces;
    for (int axis = 0; axis < map_.ndim(); ++axis) {
      const std::vector<Piece>& all = choice[static_cast<std::size_t>(axis)]->pieces;
      pieces.push_back(tiled.has(axis) ? cut_runs(all, tiled.extent(axis)) : all);
    }
    for_each_choice(pieces, [&](const std::vector<const Piece*>& chosen) {
      pair.blocks.push_back(box(chosen, sends() ? here : there, sends() ? there : here, map_, tiled));
    });
  }

  /// The fastest axes of both sides, if they differ. Axes that are the last ones of both sides do not count where they
  /// hold few elements.
  TiledAxes tiled_axes(const std::vector<const AxisOverlap*>& choice) const {
    constexpr Index long_enough = 16;  // elements that follow each other on both sides
    Index together = 1;
    for (int axis = map_.ndim() - 1; axis >= 0; --axis) {
      const int source_axis = map_.source_axis(axis);
      if (source_axis != axis) return {source_axis, axis};
      together *= choice[static_cast<std::size_t>(axis)]->count;
      if (together >= long_enough) break;
    }
    return {};
  }

  static LocalLayout layout(const Layouts& layouts, Index rank) {
    const auto found = layouts.find(rank);
    return found == layouts.end() ? LocalLayout{} : found->second;
  }

  const Distribution &source_, &target_;
  const IndexMap& map_;
  Index rank_;
  Side side_;
  const Layouts &source_layouts_, &target_layouts_;
  bool with_blocks_;
  Senders senders_;
  int share_axis_ = -1;                                   // of the target; -1: cells are not shared
  Index share_ = no_replica, peer_replica_ = no_replica;  // at hand, see add_share()
  Index source_replica_ = no_replica;                     // this rank's, of the cell at hand
};

/// Joins the pairs of each peer, in the order both sides agree on.
std::vector<Message> join(std::vector<CellPair> pairs) {
  std::stable_sort(pairs.begin(), pairs.end(), [](const CellPair& a, const CellPair& b) {
    return std::tie(a.peer, a.source_cell, a.target_cell) < std::tie(b.peer, b.source_cell, b.target_cell);
  });
  std::vector<Message> messages;
  for (CellPair& pair : pairs) {
    if (messages.empty() || messages.back().peer != pair.peer) messages.push_back({pair.peer, 0, {}});
    Message& message = messages.back();
    message.count += pair.count;
    message.turn = pair.turn;
    message.blocks.insert(message.blocks.end(), pair.blocks.begin(), pair.blocks.end());
  }
  return messages;
}

}  // namespace

RankSchedule make_schedule(const Distribution& source, const Distribution& target, const IndexMap& map, Index rank,
                           bool with_blocks, const Layouts& source_layouts, const Layouts& target_layouts,
                           Senders senders) {
  const auto collect = [&](Side side, const std::vector<Cell>& cells) {
    Collector collector(source, target, map, rank, side, source_layouts, target_layouts, with_blocks, senders);
    for (const Cell& cell : cells) collector.add(cell);
    return join(std::move(collector.pairs));
  };
  RankSchedule schedule{collect(Side::source, source.cells(rank)), collect(Side::target, target.cells(rank)), {}};
  schedule.self.peer = rank;
  const auto self = std::find_if(schedule.sends.begin(), schedule.sends.end(),
                                 [rank](const Message& message) { return message.peer == rank; });
  if (self != schedule.sends.end()) {
    schedule.self = std::move(*self);
    schedule.sends.erase(self);
  }
  return schedule;
}

}  // namespace dace_redist
