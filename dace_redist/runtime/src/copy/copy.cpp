// SPDX-License-Identifier: BSD-3-Clause
#include "copy/copy.hpp"

#include <algorithm>
#include <array>

#include "copy/chunk_walk.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/line_writer.hpp"
#include "copy/parallel_for.hpp"
#include "copy/transpose.hpp"

// The leaves of copy_batch(), in the order in which it tries them. All write in the order of the target, except tiles.
//
// | leaf            | stores       | block                                                                       |
// |-----------------|--------------|-----------------------------------------------------------------------------|
// | copy_run        | both         | one run                                                                     |
// | copy_tiles      | both         | runs <= 128 bytes, another dimension has the shortest stride in the source  |
// | assemble_lines  | ordinary     | a batch of runs of 64 bytes to 1 KiB that fill lines together; AVX-512      |
// | assemble_lines  | non-temporal | such a batch, or a single copy of runs up to 512 bytes                      |
// | copy_in_chunks  | ordinary     | a batch of any other blocks                                                 |
// | copy_in_chunks  | non-temporal | runs < 1 KiB that fill lines together: in place if all are at multiples of  |
// |                 |              | a stream width, else by way of LineWriters                                  |
// | copy_planes     | both         | all others: a single copy, runs >= 1 KiB, runs with gaps in the target      |

namespace dace_redist {

namespace detail {
namespace {

constexpr std::int64_t min_prefetched_run = 16;        ///< to prefetch each shorter run costs more than it saves
constexpr std::int64_t prefetch_bytes = 6144;          ///< prefetch distance of plane copies
constexpr std::int64_t chunk_bytes = 16384;            ///< bytes per chunk, copied for all endpoints in turn
constexpr std::int64_t max_assembled_run = 512;        ///< longer runs of a single copy are read faster one by one
constexpr std::int64_t assembled_bytes = 2048;         ///< bytes assembled for each endpoint of a batch in turn
constexpr std::int64_t assembled_ahead_bytes = 16384;  ///< prefetch distance of assembled lines
constexpr std::int64_t tile_row_bytes = 256;           ///< target bytes in a row of a tile
constexpr std::int64_t max_tile_rows = 256;            ///< runs
constexpr std::int64_t streamed_tile_columns = 64;     ///< target elements in a row of a streamed, transposed tile
constexpr std::int64_t tile_bytes = 16384;             ///< a tile and its source lines fit the L1 cache
constexpr std::int64_t max_tile_bytes = 25600;         ///< the last tiles are longer by up to a line on both sides
static_assert(max_tile_bytes >= (64 + 15) * (64 + 15) * 4, "tiles of elements of 4 bytes are the largest");

Prefetch prefetch_of_runs(std::int64_t run_bytes) {
  return run_bytes < min_prefetched_run ? Prefetch::none : Prefetch::runs;
}

/// True if short runs follow each other in the target: they fill lines together.
bool gathers_lines(const CopyBlock& block) {
  return block.ndim > 0 && block.run_bytes < direct_stream_run &&
         block.target_strides[static_cast<std::size_t>(block.ndim - 1)] == block.run_bytes;
}

/// Copies whole planes of the last two dimensions.
void copy_planes(const CopyBlock& block, const char* source, char* target, PlaneCopy copy_runs) {
  ChunkWalk walk(block, block.ndim - 2, ChunkWalk::all, ChunkWalk::all);
  Plane plane = walk.plane();  // all chunks are equal: whole planes
  plane.ahead = prefetch_bytes;
  if (plane.columns > 1 && block.run_bytes < prefetch_bytes) {
    // at most a quarter of a row: prefetches past its end are wasted
    const std::int64_t runs_ahead = std::min(prefetch_bytes / block.run_bytes, plane.columns / 4);
    plane.ahead = plane.source_column * std::max<std::int64_t>(1, runs_ahead);
  }
  do copy_runs(plane, source + walk.source(), target + walk.target());
  while (walk.advance());
}

/// True if every run starts and ends at a multiple of stream_width in all targets.
bool streams_in_place(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count) {
  std::int64_t mixed = block.run_bytes;
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) mixed |= block.target_strides[d];
  for (std::size_t p = 0; p < count; ++p) mixed |= bytes_to_line(endpoints[p].target);
  return mixed % stream_width == 0;
}

/// Chunks of at most `max_bytes` target bytes, in the order of the target, whose last dimension is contiguous.
ChunkWalk walk_in_target_order(const CopyBlock& block, std::int64_t max_bytes) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t row_bytes = block.counts[last] * block.run_bytes;
  const bool rows_follow = block.ndim > 1 && block.target_strides[last - 1] == row_bytes;
  const std::int64_t rows = rows_follow ? std::max<std::int64_t>(1, max_bytes / row_bytes) : 1;
  return ChunkWalk(block, block.ndim - 2, rows, std::max<std::int64_t>(1, max_bytes / block.run_bytes));
}

/// Parts of rows of at most chunk_bytes on both sides.
ChunkWalk walk_along_rows(const CopyBlock& block) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t column_bytes =
      std::max({block.run_bytes, magnitude(block.source_strides[last]), magnitude(block.target_strides[last])});
  return ChunkWalk(block, block.ndim - 2, 1, std::max<std::int64_t>(1, chunk_bytes / column_bytes));
}

/// The source lines of the chunk after `plane`, which begins at `next`: those of all endpoints if they overlap, else
/// those of the lowest one.
LinesAhead lines_ahead(const Plane& plane, std::int64_t next, const CopyEndpoints* endpoints, std::size_t count) {
  const auto ends = std::minmax_element(
      endpoints, endpoints + count, [](const CopyEndpoints& a, const CopyEndpoints& b) { return a.source < b.source; });
  const std::int64_t apart = ends.second->source - ends.first->source;
  const std::int64_t extent = (plane.rows - 1) * magnitude(plane.source_row) +
                              (plane.columns - 1) * magnitude(plane.source_column) + plane.run_bytes;
  return {address_at(ends.first->source, next), 1, 0, extent + (apart <= extent ? apart : 0)};
}

/// Copies chunk by chunk, each for all endpoints: source lines that these share stay in the L1 cache. `copy_runs` may
/// prefetch the next chunk.
/// \param writers  Write whole lines; null: `copy_runs` writes the targets.
/// \param interleaved  The next chunk is prefetched between the stores of the writers.
void copy_in_chunks(ChunkWalk walk, const CopyEndpoints* endpoints, std::size_t count, PlaneCopy copy_runs,
                    LineWriters* writers = nullptr, bool interleaved = false) {
  for (bool more = true; more;) {
    Plane plane = walk.plane();
    const std::int64_t from = walk.source(), to = walk.target();
    more = walk.advance();
    if (more) plane.ahead = walk.source() - from;
    if (more && interleaved) writers->prefetch(lines_ahead(plane, walk.source(), endpoints, count));
    for (std::size_t p = 0; p < count; ++p) {
      char* target = endpoints[p].target + to;
      if (writers) target = (*writers)[p].place(target, plane.rows * plane.columns * plane.run_bytes);
      copy_runs(plane, endpoints[p].source + from, target);
    }
  }
  if (writers) writers->finish();
}

/// Copies rows with lines put together in registers, a few of each endpoint in turn: where these follow each other in
/// the source it is read in order. Partial lines at both ends of a row are prefetched a row ahead.
template <bool non_temporal>
void assemble_lines(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t run_bytes = block.run_bytes, stride = block.source_strides[last], gap = stride - run_bytes;
  const std::int64_t row_bytes = block.counts[last] * run_bytes, turn_bytes = count > 1 ? assembled_bytes : row_bytes;
  const std::int64_t runs_ahead = assembled_ahead_bytes / std::max(run_bytes, magnitude(stride)) + 1;
  ChunkWalk walk(block, -1, 1, ChunkWalk::all);
  for (bool more = true; more;) {
    const std::int64_t row = walk.source(), to = walk.target();
    more = walk.advance();
    const bool prefetches_next_row = more && block.counts[last] <= runs_ahead;
    const std::int64_t ahead = prefetches_next_row ? walk.source() - row : runs_ahead * stride;
    if (non_temporal && more)
      for (std::size_t p = 0; p < count; ++p) prefetch_edges(endpoints[p].target + walk.target(), row_bytes);
    for (std::int64_t done = 0; done < row_bytes; done += turn_bytes) {
      const std::int64_t in_run = done % run_bytes, from = row + done / run_bytes * stride + in_run;
      for (std::size_t p = 0; p < count; ++p) {
        const char* const source = endpoints[p].source + from;
        char* const target = endpoints[p].target + to;
        const std::int64_t head = bytes_to_line(target);
        if (done == 0) ShortRun::copy(source, target, head);  // a run is no shorter
        write_lines<non_temporal>({source + head, run_bytes - in_run - head, run_bytes, gap}, target + head + done,
                                  std::min(turn_bytes, row_bytes - head - done), ahead);
      }
    }
  }
}

/// True if lines hold whole runs, and tiles of these are not too large.
bool divides_lines(std::int64_t run_bytes) { return run_bytes >= 4 && line_bytes % run_bytes == 0; }

/// Gathers a tile whose columns lie without gaps in the source; of elements of 4 or 8 bytes, in registers.
void transpose_tile(const Plane& gather, const char* source, char* tile) {
  if (gather.run_bytes == 8)
    transpose_matrix<std::uint64_t>(gather.rows, gather.columns, source, gather.source_row, tile, gather.target_column);
  else if (gather.run_bytes == 4)
    transpose_matrix<std::uint32_t>(gather.rows, gather.columns, source, gather.source_row, tile, gather.target_column);
  else
    plane_copy(gather.run_bytes)(gather, source, tile);
}

/// Lengths of chunks of elements that follow each other from `start` on: the first one ends at the end of a line, so
/// that all others fill lines if `start` is a multiple of the element size. The last one may be longer by a part of a
/// line.
ChunkWalk::Lengths ending_with_lines(std::int64_t length, std::int64_t element_bytes, const char* start) {
  const std::int64_t line = line_bytes / element_bytes, part = bytes_to_line(start) / element_bytes;
  return {part == 0 ? length : length - line + part, length, length + line - 1};
}

/// A length of parts of about equal lengths: a multiple of `unit`, and at most `most`, if that is no less.
std::int64_t even_part(std::int64_t length, std::int64_t most, std::int64_t unit) {
  most = std::max(unit, most - most % unit);
  const std::int64_t parts = (length + most - 1) / most;
  return round_up((length + parts - 1) / parts, unit);
}

/// Copies tiles whose source lines and target lines both fit the cache; `row_dim` is transposed_dimension().
///
/// The next tile is prefetched between the non-temporal stores if runs that divide lines are transposed and streamed,
/// else before or while a tile is gathered.
void copy_tiles(const CopyBlock& block, int row_dim, const char* source, char* target, bool stream) {
  const auto last = static_cast<std::size_t>(block.ndim - 1);
  const std::int64_t run_bytes = block.run_bytes;
  const bool gathered = block.target_strides[last] == run_bytes;
  const bool transposed =
      gathered && divides_lines(run_bytes) && block.source_strides[static_cast<std::size_t>(row_dim)] == run_bytes;
  const bool fills_lines = transposed && stream;
  const std::int64_t max_row = fills_lines ? streamed_tile_columns * run_bytes : tile_row_bytes;
  const std::int64_t columns = std::min(max_row / run_bytes, block.counts[last]);
  const std::int64_t rows = even_part(block.counts[static_cast<std::size_t>(row_dim)],
                                      std::min(max_tile_rows, tile_bytes / (columns * run_bytes)),
                                      std::max<std::int64_t>(1, line_bytes / run_bytes));
  const auto lengths = [&](std::int64_t length, const char* start) {
    return fills_lines ? ending_with_lines(length, run_bytes, start) : ChunkWalk::Lengths{length, length, length};
  };
  // [rows, columns, run_bytes]
  alignas(line_bytes) std::array<char, static_cast<std::size_t>(max_tile_bytes)> tile;
  const PlaneCopy copy_runs = plane_copy(run_bytes, run_bytes < min_prefetched_run ? Prefetch::rows : Prefetch::runs);
  const PlaneCopy copy_rows = stream ? copy_plane<StreamRun, Prefetch::none> : plane_copy(columns * run_bytes);
  ChunkWalk walk(block, row_dim, lengths(rows, source), lengths(columns, target));
  for (bool more = true; more;) {
    const Plane plane = walk.plane();
    const char* const from = source + walk.source();
    char* const to = target + walk.target();
    more = walk.advance();
    // columns outside: each source line is read once, in full
    Plane gather{plane.columns,    plane.rows,          run_bytes,        plane.source_column,
                 plane.source_row, plane.target_column, plane.target_row, 0};
    LinesAhead lines;
    if (more) {
      gather.ahead = source + walk.source() - from;
      const Plane next = walk.plane();
      if (transposed)
        lines = LinesAhead(address_at(source, walk.source()), next.columns, next.source_column, next.rows * run_bytes);
    }
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
    const std::int64_t stores = plane.target_row == row_bytes ? 1 : plane.rows;  // rows that follow each other are one
    const std::int64_t stored_bytes = plane.rows * row_bytes / stores;
    if (fills_lines) {
      for (std::int64_t s = 0; s < stores; ++s)
        StreamRun::copy(tile.data() + s * stored_bytes, to + s * plane.target_row, stored_bytes, lines);
      lines.prefetch_all();  // there are fewer stores than lines where rows are short
      continue;
    }
    const Plane scatter{1, stores, stored_bytes, 0, stored_bytes, 0, plane.target_row, 0};
    const PlaneCopy copy_these =
        stream || stored_bytes == columns * run_bytes ? copy_rows : copy_plane<LongRun, Prefetch::none>;
    copy_these(scatter, tile.data(), to);
  }
}

void copy_run(const CopyBlock& block, const CopyEndpoints& endpoints, bool streamed) {
  if (streamed)
    StreamRun::copy(endpoints.source, endpoints.target, block.run_bytes, prefetch_bytes);
  else
    LongRun::copy(endpoints.source, endpoints.target, block.run_bytes);
}

/// Copies in the order of the target, with non-temporal stores.
void stream(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count) {
  if (!gathers_lines(block)) {
    for (std::size_t p = 0; p < count; ++p)
      copy_planes(block, endpoints[p].source, endpoints[p].target, copy_plane<StreamRun, Prefetch::streamed>);
    return;
  }
  if (fills_lines(block.run_bytes) && (count > 1 || block.run_bytes <= max_assembled_run))
    return assemble_lines<true>(block, endpoints, count);
  if (streams_in_place(block, endpoints, count))
    return copy_in_chunks(walk_in_target_order(block, chunk_bytes / 2), endpoints, count,
                          copy_plane<AlignedStreamRun, Prefetch::runs>);
  LineWriters writers(count);
  const bool interleaved = count > 1 && block.run_bytes <= min_prefetched_run;
  copy_in_chunks(walk_in_target_order(block, writers.max_piece() / (count > 1 ? 2 : 1)), endpoints, count,
                 plane_copy(block.run_bytes, interleaved ? Prefetch::none : prefetch_of_runs(block.run_bytes)),
                 &writers, interleaved);
}

/// Copies in the order of the target, with ordinary stores.
/// \param from_memory  True if the block is larger than the cache: only then prefetching pays.
void store(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool from_memory) {
  const PlaneCopy copy_runs = plane_copy(block.run_bytes);
  if (count == 1)
    copy_planes(block, endpoints->source, endpoints->target, copy_runs);
  else if (gathers_lines(block) && fills_lines(block.run_bytes) && target_span(block) >= min_streamed_span)
    assemble_lines<false>(block, endpoints, count);
  else
    copy_in_chunks(walk_along_rows(block), endpoints, count,
                   plane_copy(block.run_bytes, from_memory ? prefetch_of_runs(block.run_bytes) : Prefetch::none));
}

void share_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream, int threads) {
  parallel_for(threads, [&](int part) {
    const CopyBlock share = slice(block, part, threads);
    std::array<CopyEndpoints, max_batch> places;
    for (std::size_t p = 0; p < count; ++p)
      places[p] = {endpoints[p].source + (share.source_offset - block.source_offset),
                   endpoints[p].target + (share.target_offset - block.target_offset)};
    copy_batch(share, places.data(), count, stream);
  });
}

}  // namespace
}  // namespace detail

void copy(const CopyBlock& block, const void* source, void* target, bool stream, int threads) {
  const CopyEndpoints endpoints{static_cast<const char*>(source) + block.source_offset,
                                static_cast<char*>(target) + block.target_offset};
  copy_batch(block, &endpoints, 1, stream, threads);
}

void copy_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream, int threads) {
  const std::int64_t nbytes = block.nbytes();
  if (nbytes == 0) return;
  if (threads > 1 && nbytes * static_cast<std::int64_t>(count) >= detail::min_parallel_bytes)
    return detail::share_batch(block, endpoints, count, stream, threads);
  if (count == 1 && endpoints->source == endpoints->target && block.source_strides == block.target_strides) return;
  const bool streamed = stream && detail::can_stream && detail::target_span(block) >= detail::min_streamed_span;
  const int row_dim = detail::transposed_dimension(block);
  if (block.ndim == 0)
    for (std::size_t p = 0; p < count; ++p) detail::copy_run(block, endpoints[p], streamed);
  else if (row_dim >= 0)
    for (std::size_t p = 0; p < count; ++p)
      detail::copy_tiles(block, row_dim, endpoints[p].source, endpoints[p].target, streamed);
  else if (streamed)
    detail::stream(block, endpoints, count);
  else
    detail::store(block, endpoints, count, stream);
  if (streamed) detail::stream_fence();
}

}  // namespace dace_redist
