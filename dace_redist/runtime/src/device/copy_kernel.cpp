// SPDX-License-Identifier: BSD-3-Clause
#include "device/copy_kernel.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "copy/copy_block.hpp"
#include "device/tile_kernels.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {
namespace {

constexpr std::size_t max_alignment = 16;  // of words
constexpr std::int64_t max_group_steps = std::numeric_limits<std::int32_t>::max();

/// A dimension of words.
using WordDimension = std::array<std::int64_t, 3>;
enum : std::size_t { count, source_stride, target_stride };  // strides in bytes

using Dimensions = std::vector<WordDimension>;

std::int64_t product_of_counts(const Dimensions& dimensions) {
  std::int64_t product = 1;
  for (const WordDimension& dimension : dimensions) product *= dimension[count];
  return product;
}

/// Moves the dimension in which neighbouring words of the source lie to the end, if it is not the last one and source
/// and target have too few neighbours in common. \return whether it did.
bool transpose(Dimensions& dimensions) {
  constexpr std::int64_t line_bytes = 128;  // of the cache
  const auto distance = [](const WordDimension& dimension) {
    const std::int64_t stride = std::abs(dimension[source_stride]);
    return stride == 0 ? line_bytes : stride;
  };
  const auto rows = std::min_element(dimensions.begin(), dimensions.end(),
                                     [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  if (rows == dimensions.end() || distance(*rows) >= std::min(line_bytes, distance(dimensions.back()))) return false;
  if (dimensions.back()[source_stride] == 0 || (*rows)[count] * dimensions.back()[count] < tile_threads) return false;
  std::rotate(rows, rows + 1, dimensions.end());
  return true;
}

/// Common properties of the blocks of a launch: whether tiles are transposed, the type of words in the source, and the
/// first of the addresses on both sides.
using Kind = std::tuple<bool, ElementType, std::uint32_t, std::uint32_t>;

/// The places of blocks, by kind and shape. The last two dimensions of transposed ones are columns and rows.
using BlocksByShape = std::map<Kind, std::map<Dimensions, std::vector<TilePlace>>>;

/// The longest words that divide everything. \param alignment  of all addresses: 1, 2, 4, 8 or 16.
ElementType copied_words(const CopyBlock& block, std::size_t alignment) {
  std::int64_t mixed =
      block.run_bytes | block.source_offset | block.target_offset | static_cast<std::int64_t>(alignment);
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
    mixed |= block.source_strides[d] | block.target_strides[d];
  constexpr ElementType of_bytes[] = {ElementType::uint8, ElementType::uint16, ElementType::uint32, ElementType::uint64,
                                      ElementType::complex128};
  std::size_t log2 = 0;
  while ((mixed >> log2) % 2 == 0) ++log2;
  return of_bytes[log2];
}

/// Adds a block, in halves if its words are too many for a group.
void add_block(BlocksByShape& blocks, const Kind& kind, Dimensions shape, TilePlace place) {
  if (product_of_counts(shape) <= max_group_steps) {
    blocks[kind][std::move(shape)].push_back(place);
    return;
  }
  const auto longest = static_cast<std::size_t>(std::max_element(shape.begin(), shape.end()) - shape.begin());
  const std::int64_t half = shape[longest][count] / 2;
  Dimensions rest = shape;
  rest[longest][count] -= half;
  shape[longest][count] = half;
  add_block(blocks, kind, shape, place);
  place.source_offset += half * shape[longest][source_stride];
  place.target_offset += half * shape[longest][target_stride];
  add_block(blocks, kind, std::move(rest), place);
}

/// First step: copies as blocks of words. \param alignment  of all addresses that the copies name.
BlocksByShape sort_by_shape(const std::vector<DeviceCopy>& copies, const ElementStep& step, std::size_t alignment) {
  BlocksByShape blocks;
  const bool computes = step.kernel != nullptr;
  for (const DeviceCopy& copy : copies) {
    const CopyBlock block = computes ? make_element_block(copy.block, step.source_bytes, step.target_bytes)
                                     : make_copy_block(copy.block, step.source_bytes);
    if (block.run_bytes == 0) continue;
    const ElementType words = computes ? step.kernel->operation().source : copied_words(block, alignment);
    const std::int64_t word_bytes = element_bytes_of(words);
    Dimensions shape;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      shape.push_back({block.counts[d], block.source_strides[d], block.target_strides[d]});
    const bool run = !computes && block.run_bytes > word_bytes;
    if (run) shape.push_back({block.run_bytes / word_bytes, word_bytes, word_bytes});
    const bool transposed = !run && transpose(shape);
    const auto source = static_cast<std::uint32_t>(copy.source), target = static_cast<std::uint32_t>(copy.target);
    const std::uint32_t of_source = source % launch_addresses, of_target = target % launch_addresses;
    add_block(blocks, {transposed, words, source - of_source, target - of_target}, std::move(shape),
              {block.source_offset, block.target_offset, of_source, of_target});
  }
  return blocks;
}

/// Launches, without their addresses and the places of their tables, and these tables.
struct TileTables {
  std::vector<TileLaunch> launches;
  std::vector<TileGroup> groups;
  std::vector<TileDimension> dimensions;
  std::vector<TilePlace> places;
};

/// Adds a dimension in parts of so many words. \return their number.
std::int64_t add_dimension(TileTables& tables, const WordDimension& words, std::int64_t length) {
  TileDimension& dimension = tables.dimensions.emplace_back();
  dimension.count = static_cast<std::uint32_t>(ceil_div(words[count], length));
  dimension.by_count = Divisor(dimension.count);
  dimension.source_stride = length * words[source_stride];
  dimension.target_stride = length * words[target_stride];
  return dimension.count;
}

/// Makes tiles as large as fit, with rows of whole cache lines first.
void set_sides(const Dimensions& shape, std::int64_t words, TileGroup& group) {
  constexpr std::int64_t row_words = 32;
  const WordDimension &columns = *(shape.end() - 2), &rows = shape.back();
  const std::int64_t width = std::min(columns[count], words / std::min(rows[count], row_words));
  const auto side = [](const WordDimension& dimension, std::int64_t max_length) {
    TileSide made;
    made.count = static_cast<std::uint32_t>(dimension[count]);
    made.length = static_cast<std::uint32_t>(ceil_div(dimension[count], ceil_div(dimension[count], max_length)));
    made.by_length = Divisor(made.length);
    made.source_stride = dimension[source_stride];
    made.target_stride = dimension[target_stride];
    return made;
  };
  group.columns = side(columns, width);
  group.rows = side(rows, words / width);
}

/// Adds blocks of one shape at `blocks` places to the last launch.
void add_group(TileTables& tables, const Dimensions& shape, std::int64_t blocks) {
  TileLaunch& launch = tables.launches.back();
  TileGroup group;
  group.first_tile = launch.tiles;
  group.first_dimension = static_cast<std::uint32_t>(tables.dimensions.size());
  group.ndim = static_cast<std::uint32_t>(shape.size());
  group.first_place = static_cast<std::uint32_t>(tables.places.size());
  const auto word_bytes = static_cast<std::size_t>(element_bytes_of(launch.operation.source));
  if (launch.transposed) set_sides(shape, transposed_words(word_bytes), group);
  std::int64_t steps = blocks;
  for (const WordDimension& words : shape) {
    const bool column = launch.transposed && &words == &shape.back() - 1,
               row = launch.transposed && &words == &shape.back();
    steps *= add_dimension(tables, words, column ? group.columns.length : row ? group.rows.length : 1);
  }
  group.steps = static_cast<std::uint32_t>(steps);
  tables.groups.push_back(group);
  ++launch.group_count;
  const std::int64_t tile_steps = launch.transposed ? 1 : words_in_flight * tile_threads,
                     tiles = launch.tiles + ceil_div(steps, tile_steps);
  if (tiles > max_group_steps)
    throw Error(text("the copies take ", tiles, " thread blocks, but a device starts at most 2^31 - 1 at once"));
  launch.tiles = static_cast<std::uint32_t>(tiles);
}

/// Second step: a launch for each kind of block, a group for each shape.
TileTables tables_of(const BlocksByShape& blocks, const ElementStep& step) {
  TileTables tables;
  for (const auto& [kind, shapes] : blocks) {
    TileLaunch& launch = tables.launches.emplace_back();
    std::tie(launch.transposed, launch.operation.source, launch.first_source, launch.first_target) = kind;
    launch.operation.target = launch.operation.source;
    launch.first_group = static_cast<std::uint32_t>(tables.groups.size());
    if (step.kernel) launch.operation = step.kernel->operation();
    for (const auto& [shape, at] : shapes) {
      const std::int64_t at_once = max_group_steps / product_of_counts(shape);
      for (std::size_t first = 0; first < at.size(); first += static_cast<std::size_t>(at_once)) {
        const auto some = std::min(at_once, static_cast<std::int64_t>(at.size() - first));
        add_group(tables, shape, some);
        tables.places.insert(tables.places.end(), &at[first], &at[first] + some);
      }
    }
  }
  return tables;
}

/// The largest number of 1, 2, 4, 8, 16 that divides all addresses in use.
/// \param element_bytes  of an element that is computed with, else 1. \throws Error if it is not aligned to its size.
template <class Address>
std::size_t common_alignment(const char* side, const std::set<int>& used, const std::vector<Address>& addresses,
                             std::int64_t element_bytes) {
  if (!used.empty() && *used.rbegin() >= static_cast<int>(addresses.size()))
    throw Error(text("copies on a device use ", side, " address ", *used.rbegin(), " of ", addresses.size()));
  std::uintptr_t all = max_alignment;
  for (const int number : used) all |= reinterpret_cast<std::uintptr_t>(addresses[static_cast<std::size_t>(number)]);
  const std::size_t alignment = all & (~all + 1);
  if (alignment < static_cast<std::size_t>(element_bytes))
    throw Error(text("elements of ", element_bytes, " bytes that are computed with must be aligned to their size on ",
                     "a GPU, but the address of the ", side, " is a multiple of ", alignment,
                     " bytes only; copy the array to memory of its own"));
  return alignment;
}

}  // namespace

bool device_computes(ElementType source, ElementType target) {
  const ElementKind from = element_info(source).kind, to = element_info(target).kind;
  const auto is_short = [](ElementType type) { return element_info(type).nbytes < 4; };  // float16, bfloat16
  const bool converts = from == to && from >= ElementKind::real && !is_short(source) && !is_short(target);
  return from != ElementKind::opaque && (source == target || converts);
}

void check_device_step(const ElementStep& step) {
  if (!step.kernel) return;
  const ElementOperation& operation = step.kernel->operation();
  if (device_computes(operation.source, operation.target)) return;
  throw Error(text("elements cannot be converted from ", element_name(operation.source), " to ",
                   element_name(operation.target),
                   " on a GPU, only between float32 and float64, and between complex64 and complex128; convert the ",
                   "array on the GPU before the redistribution, or its result afterwards"));
}

CopyKernel::CopyKernel(TileRunner& device, std::vector<DeviceCopy> copies, const ElementStep& step)
    : device_(device), copies_(std::move(copies)), step_(step) {
  check_device_step(step);
  if (step.kernel) {
    kernel_ = *step.kernel;
    step_.kernel = &kernel_;
  }
  for (const DeviceCopy& copy : copies_) {
    if (copy.source < 0 || copy.target < 0) throw Error("a copy on a device has an address of negative number");
    used_sources_.insert(copy.source);
    used_targets_.insert(copy.target);
  }
  prepare(max_alignment);
}

void CopyKernel::prepare(std::size_t alignment) {
  TileTables tiles = tables_of(sort_by_shape(copies_, step_, alignment), step_);
  if (tiles.launches.empty()) return;
  const auto upload = [this](const auto& list) {
    if (list.empty()) return DeviceHandle();
    return device_.upload(list.data(), static_cast<std::int64_t>(list.size() * sizeof list[0]));
  };
  Variant& made = variants_[alignment];
  made = {std::move(tiles.launches), upload(tiles.groups), upload(tiles.dimensions), upload(tiles.places)};
  for (TileLaunch& launch : made.launches) {
    launch.groups = static_cast<const TileGroup*>(made.groups.get());
    launch.dimensions = static_cast<const TileDimension*>(made.dimensions.get());
    launch.places = static_cast<const TilePlace*>(made.places.get());
  }
}

void CopyKernel::launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream) {
  const bool computes = step_.kernel != nullptr;
  const std::size_t source = common_alignment("source", used_sources_, sources, computes ? step_.source_bytes : 1),
                    target = common_alignment("target", used_targets_, targets, computes ? step_.target_bytes : 1),
                    alignment = computes ? max_alignment : std::min(source, target);
  if (variants_[alignment].launches.empty()) prepare(alignment);
  for (TileLaunch launch : variants_[alignment].launches) {
    const auto take = [](const auto& from, std::size_t first, auto& to) {
      const std::size_t end = std::min<std::size_t>(from.size(), first + launch_addresses);
      if (first < end) std::copy(from.begin() + first, from.begin() + end, to);
    };
    take(sources, launch.first_source, launch.sources);
    take(targets, launch.first_target, launch.targets);
    device_.run(launch, stream);
  }
}

}  // namespace dace_redist
