// SPDX-License-Identifier: BSD-3-Clause
#include "copy/copy.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "copy/chunk_walk.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/line_assembler.hpp"
#include "copy/line_writer.hpp"
#include "copy/transpose.hpp"

namespace dace_redist {

namespace detail {
namespace {

constexpr std::int64_t longest_tiled_run = 128;        ///< longer runs fill lines on both sides in any loop order
constexpr std::int64_t prefetch_bytes = 6144;          ///< bytes between what is copied and what is prefetched
constexpr std::int64_t together_bytes = 16384;         ///< bytes that are copied for all places in turn
constexpr std::int64_t assembled_ahead_bytes = 16384;  ///< the same where lines are put together in registers
constexpr std::int64_t tile_row_bytes = 256;           ///< target bytes in one row of a tile
constexpr std::int64_t streamed_tile_columns = 64;     ///< target elements in one row, if transposed and streamed
constexpr std::int64_t tile_bytes = 16384;             ///< a tile and its source lines stay in the L1 cache
constexpr std::int64_t longest_tile_bytes = 25600;     ///< the last tiles are longer by up to a line on both sides
static_assert(longest_tile_bytes >= (64 + 15) * (64 + 15) * 4, "of elements of 4 bytes, the most of all");

/// The dimension along which the source is read in order, if that is not the last one and runs are short; else -1.
int transposed_dimension(const CopyBlock& block) {
  if (block.ndim < 2 || block.run_bytes > longest_tiled_run) return -1;
  const int last = block.ndim - 1;
  int best = last;
  for (int d = 0; d < last; ++d) {
    const std::int64_t stride = magnitude(block.source_strides[static_cast<std::size_t>(d)]);
    if (stride > 0 && stride < magnitude(block.source_strides[static_cast<std::size_t>(best)])) best = d;
  }
  return best == last ? -1 : best;
}

/// Whether short runs follow each other in the target, so that they fill lines together.
bool gathers_lines(const CopyBlock& block) {
  return block.ndim > 0 && block.run_bytes < direct_stream_run &&
         block.target_strides[static_cast<std::size_t>(block.ndim - 1)] == block.run_bytes;
}

/// Copies with ordinary stores, or runs that are long enough with non-temporal stores, in the order of the target.
void copy_direct(const CopyBlock& block, const char* source, char* target, PlaneCopy copy_runs) {
  ChunkWalk walk(block, block.ndim - 2, block.ndim < 2 ? 1 : block.counts[static_cast<std::size_t>(block.ndim - 2)],
                 block.ndim < 1 ? 1 : block.counts[static_cast<std::size_t>(block.ndim - 1)]);
  Plane plane = walk.plane();  // all chunks are equal: whole planes
  plane.ahead = prefetch_bytes;
  if (plane.columns > 1 && block.run_bytes < prefetch_bytes) {
    // at most a quarter of a row: what is prefetched past its end is wasted
    const std::int64_t runs_ahead = std::min(prefetch_bytes / block.run_bytes, plane.columns / 4);
    plane.ahead = plane.source_column * std::max<std::int64_t>(1, runs_ahead);
  }
  do copy_runs(plane, source + walk.source(), target + walk.target());
  while (walk.advance());
}

/// Whether every run starts and ends at a multiple of stream_width in the target.
bool streams_in_place(const CopyBlock& block, const char* target) {
  std::int64_t mixed = block.run_bytes | bytes_to_line(target);
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) mixed |= block.target_strides[d];
  return mixed % stream_width == 0;
}

/// Chunk of a block whose last dimension is contiguous in the target: as many of its runs as a LineWriter takes at
/// once.
ChunkWalk walk_in_target_order(const CopyBlock& block, std::int64_t longest) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t row_bytes = block.counts[last] * block.run_bytes;
  const bool rows_follow = block.ndim > 1 && block.target_strides[last - 1] == row_bytes;
  const std::int64_t rows = rows_follow ? std::max<std::int64_t>(1, longest / row_bytes) : 1;
  return ChunkWalk(block, block.ndim - 2, rows, std::max<std::int64_t>(1, longest / block.run_bytes));
}

/// Writes with non-temporal stores, straight where alignment permits, else through a LineWriter.
///
/// In the order of the target, whose last dimension is contiguous.
void copy_non_temporal(const CopyBlock& block, const char* source, char* target) {
  ChunkWalk walk = walk_in_target_order(block, LineWriter::longest_piece);
  const bool in_place = streams_in_place(block, target);
  const PlaneCopy copy_runs =
      in_place ? copy_plane<AlignedStreamRun, Prefetch::runs> : plane_copy<Prefetch::runs>(block.run_bytes);
  ChunkWalk ahead = walk;
  const Plane chunk = walk.plane();
  bool more_ahead = true;
  const std::int64_t chunk_bytes = chunk.rows * chunk.columns * chunk.run_bytes;
  for (std::int64_t nbytes = 0; more_ahead && nbytes < prefetch_bytes; nbytes += chunk_bytes)
    more_ahead = ahead.advance();
  LineWriter writer;
  do {
    Plane plane = walk.plane();
    if (more_ahead) {
      plane.ahead = ahead.source() - walk.source();
      more_ahead = ahead.advance();
    }
    char* to = target + walk.target();
    if (!in_place) to = writer.place(to, plane.rows * plane.columns * plane.run_bytes);
    copy_runs(plane, source + walk.source(), to);
  } while (walk.advance());
  writer.finish();
}

/// The same at several places, chunk by chunk for all of them, through a LineWriter each. Between the stores it
/// prefetches the source lines of the next chunk: those of all places if they overlap, else those of the lowest one.
void copy_non_temporal_together(const CopyBlock& block, const CopyEndpoints* places, std::size_t count) {
  ChunkWalk walk = walk_in_target_order(block, LineWriter::longest_piece / 2);
  const PlaneCopy copy_runs = plane_copy<Prefetch::none>(block.run_bytes);
  ChunkWalk ahead = walk;
  bool more_ahead = ahead.advance();
  const auto ends = std::minmax_element(places, places + count,
                                        [](const CopyEndpoints& a, const CopyEndpoints& b) { return a.source < b.source; });
  LinesAhead lines;
  std::array<LineWriter, max_batch> writers;
  for (std::size_t p = 0; p < count; ++p) writers[p].prefetch_from(&lines);
  do {
    const Plane plane = walk.plane();
    if (more_ahead) {
      const std::int64_t extent = (plane.rows - 1) * magnitude(plane.source_row) +
                                  (plane.columns - 1) * magnitude(plane.source_column) + plane.run_bytes;
      const std::int64_t apart = ends.second->source - ends.first->source;
      lines = LinesAhead(address_at(ends.first->source, ahead.source()), 1, 0, extent + (apart <= extent ? apart : 0));
      more_ahead = ahead.advance();
    }
    for (std::size_t p = 0; p < count; ++p) {
      char* const to = writers[p].place(places[p].target + walk.target(), plane.rows * plane.columns * plane.run_bytes);
      copy_runs(plane, places[p].source + walk.source(), to);
    }
  } while (walk.advance());
  for (std::size_t p = 0; p < count; ++p) writers[p].finish();
}

/// The same with lines put together in registers, a few of each place in turn: where the places follow each other in
/// the source it is read in order. The parts of lines at both ends of a row are prefetched a row ahead.
template <bool non_temporal>
void assemble_lines_together(const CopyBlock& block, const CopyEndpoints* places, std::size_t count) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t stride = block.source_strides[last], nbytes = block.counts[last] * block.run_bytes;
  const std::int64_t runs_ahead = assembled_ahead_bytes / std::max(block.run_bytes, magnitude(stride)) + 1;
  ChunkWalk walk(block, -1, 1, block.counts[last]);
  ChunkWalk next = walk;
  const LineAssembler<non_temporal> assembler(block.run_bytes, stride, nbytes);
  for (bool more = true; more; more = walk.advance()) {
    const bool more_ahead = next.advance(), prefetch_next_row = more_ahead && block.counts[last] <= runs_ahead;
    if (non_temporal && more_ahead)
      for (std::size_t p = 0; p < count; ++p) prefetch_edges(places[p].target + next.target(), nbytes);
    assembler.write(places, count, walk.source(), walk.target(),
                    prefetch_next_row ? next.source() - walk.source() : runs_ahead * stride);
  }
}

/// Copies with ordinary stores in the order of the target; chunk by chunk, each for all places, so that source lines
/// that they share are still in the L1 cache for the next place.
void copy_direct_together(const CopyBlock& block, const CopyEndpoints* places, std::size_t count) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t column_bytes =
      std::max({block.run_bytes, magnitude(block.source_strides[last]), magnitude(block.target_strides[last])});
  const std::int64_t columns = std::max<std::int64_t>(1, together_bytes / column_bytes);
  ChunkWalk walk(block, block.ndim - 2, 1, columns);
  ChunkWalk ahead = walk;
  bool more_ahead = ahead.advance();
  const PlaneCopy copy_runs = plane_copy<Prefetch::runs>(block.run_bytes);
  do {
    Plane plane = walk.plane();
    if (more_ahead) {
      plane.ahead = ahead.source() - walk.source();
      more_ahead = ahead.advance();
    }
    for (std::size_t p = 0; p < count; ++p)
      copy_runs(plane, places[p].source + walk.source(), places[p].target + walk.target());
  } while (walk.advance());
}

/// Gathers a tile of elements of 4 or 8 bytes whose columns lie without gaps in the source.
void transpose_tile(const Plane& gather, const char* source, char* tile) {
  if (gather.run_bytes == 8)
    transpose_matrix<std::uint64_t>(gather.rows, gather.columns, source, gather.source_row, tile, gather.target_column);
  else
    transpose_matrix<std::uint32_t>(gather.rows, gather.columns, source, gather.source_row, tile, gather.target_column);
}

/// Lengths of chunks of elements that follow each other from `start` on: the first one ends where a line does, so that
/// all others fill lines, if `start` is a multiple of the element size. The last one may be longer by a part of a line.
ChunkWalk::Lengths ending_with_lines(std::int64_t length, std::int64_t element_bytes, const char* start) {
  const std::int64_t line = line_bytes / element_bytes, part = bytes_to_line(start) / element_bytes;
  return {part == 0 ? length : length - line + part, length, length + line - 1};
}

/// Copies tiles whose source lines and target lines both fit the cache; `row_dim` is the source's own order.
///
/// The next tile is prefetched between the non-temporal stores if elements are transposed in registers and streamed,
/// else before or while a tile is gathered.
void copy_tiles(const CopyBlock& block, int row_dim, const char* source, char* target, bool stream) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t run_bytes = block.run_bytes;
  const bool gathered = block.target_strides[last] == run_bytes;
  const bool transposed = gathered && (run_bytes == 4 || run_bytes == 8) &&
                          block.source_strides[static_cast<std::size_t>(row_dim)] == run_bytes;
  const bool fills_lines = transposed && stream;
  const std::int64_t longest_row = fills_lines ? streamed_tile_columns * run_bytes : tile_row_bytes;
  const std::int64_t columns = std::min(longest_row / run_bytes, block.counts[last]);
  const std::int64_t rows = std::min(tile_row_bytes, tile_bytes / (columns * run_bytes));
  const auto lengths = [&](std::int64_t length, const char* start) {
    return fills_lines ? ending_with_lines(length, run_bytes, start) : ChunkWalk::Lengths{length, length, length};
  };
  // [rows, columns, run_bytes]
  alignas(line_bytes) std::array<char, static_cast<std::size_t>(longest_tile_bytes)> tile;
  const PlaneCopy copy_runs = plane_copy<Prefetch::rows>(run_bytes);
  const PlaneCopy copy_rows =
      stream ? copy_plane<StreamRun, Prefetch::none> : plane_copy<Prefetch::none>(columns * run_bytes);
  ChunkWalk walk(block, row_dim, lengths(rows, source), lengths(columns, target));
  ChunkWalk ahead = walk;
  bool more_ahead = ahead.advance();
  do {
    const Plane plane = walk.plane();
    // columns outside, so that each source line is read once, in full
    Plane gather{plane.columns,    plane.rows,          run_bytes,        plane.source_column,
                 plane.source_row, plane.target_column, plane.target_row, 0};
    LinesAhead lines;
    if (more_ahead) {
      gather.ahead = ahead.source() - walk.source();
      const Plane next = ahead.plane();
      if (transposed)
        lines = LinesAhead(address_at(source, ahead.source()), next.columns, next.source_column, next.rows * run_bytes);
      more_ahead = ahead.advance();
    }
    const char* const from = source + walk.source();
    char* const to = target + walk.target();
    if (!gathered) {
      copy_runs(gather, from, to);
      continue;
    }
    const std::int64_t row_bytes = plane.columns * run_bytes;
    gather.target_row = run_bytes;
    gather.target_column = row_bytes;
    if (!stream) lines.prefetch_all();
    if (transposed)
      transpose_tile(gather, from, tile.data());
    else
      copy_runs(gather, from, tile.data());
    if (fills_lines) {
      for (std::int64_t row = 0; row < plane.rows; ++row)
        StreamRun::copy(tile.data() + row * row_bytes, to + row * plane.target_row, row_bytes, lines);
      lines.prefetch_all();  // there are fewer stores than lines where rows are short
      continue;
    }
    const Plane scatter{1, plane.rows, row_bytes, 0, row_bytes, 0, plane.target_row, 0};
    const PlaneCopy copy_these = plane.columns == columns ? copy_rows : copy_plane<LongRun, Prefetch::none>;
    copy_these(scatter, tile.data(), to);
  } while (walk.advance());
}

/// Copies a block from and to its first run, wherever its offsets say it is.
void copy_at(const CopyBlock& block, const char* from, char* to, bool stream) {
  if (block.ndim == 0) {
    if (stream && block.run_bytes >= shortest_streamed_span) {
      StreamRun::copy(from, to, block.run_bytes, prefetch_bytes);
      stream_fence();
    } else {
      LongRun::copy(from, to, block.run_bytes);
    }
    return;
  }
  if (block.nbytes() == 0) return;
  const bool streamed = stream && target_span(block) >= shortest_streamed_span;
  const int row_dim = transposed_dimension(block);
  if (row_dim >= 0)
    copy_tiles(block, row_dim, from, to, streamed);
  else if (streamed && gathers_lines(block))
    copy_non_temporal(block, from, to);
  else if (streamed)
    copy_direct(block, from, to, copy_plane<StreamRun, Prefetch::streamed>);
  else
    copy_direct(block, from, to, plane_copy<Prefetch::none>(block.run_bytes));
  if (streamed) stream_fence();
}

}  // namespace
}  // namespace detail

void copy(const CopyBlock& block, const void* source, void* target, bool stream) {
  detail::copy_at(block, static_cast<const char*>(source) + block.source_offset,
                  static_cast<char*>(target) + block.target_offset, stream);
}

void copy_batch(const CopyBlock& block, const CopyEndpoints* places, std::size_t count, bool stream) {
  const bool in_order = block.ndim > 0 && detail::transposed_dimension(block) < 0, in_one = in_order && count > 1;
  const bool spans_lines = in_order && detail::target_span(block) >= detail::shortest_streamed_span;
  const bool streamed = spans_lines && stream;
  if (spans_lines && detail::gathers_lines(block) && detail::fills_lines(block.run_bytes)) {
    if (!stream) return detail::assemble_lines_together<false>(block, places, count);
    detail::assemble_lines_together<true>(block, places, count);
    detail::stream_fence();
  } else if (in_one && streamed && detail::gathers_lines(block)) {
    detail::copy_non_temporal_together(block, places, count);
    detail::stream_fence();
  } else if (in_one && !streamed) {
    detail::copy_direct_together(block, places, count);
  } else {
    for (std::size_t p = 0; p < count; ++p) detail::copy_at(block, places[p].source, places[p].target, stream);
  }
}

}  // namespace dace_redist
