// SPDX-License-Identifier: BSD-3-Clause
#include "device/copy_tiles.hpp"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>

#include "copy/copy_block.hpp"
#include "device/box_shape.hpp"
#include "device/element_support.hpp"
#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

template <class T>
std::uint32_t index_of_end(const std::vector<T>& list) {
  if (list.size() > std::numeric_limits<std::uint32_t>::max())
    throw Error("the copies are too many for one launch on a device");
  return static_cast<std::uint32_t>(list.size());
}

/// Makes the lists of a CopyTiles.
class TileBuilder {
 public:
  TileBuilder(const ElementStep& step, std::int64_t alignment)
      : source_bytes_(step.source_bytes),
        target_bytes_(step.target_bytes),
        alignment_(alignment),
        computes_(step.kernel != nullptr) {
    check_device_step(step);
    if (computes_) operation = OperationValues(step.kernel->operation());
  }

  /// Cuts a copy into blocks, and puts each into the group of its shape.
  void add(const DeviceCopy& copy) {
    const CopyBlock block = computes_ ? make_element_block(copy.block, source_bytes_, target_bytes_)
                                      : make_copy_block(copy.block, source_bytes_);
    if (block.run_bytes == 0) return;
    const TileWords words = computes_ ? TileWords::elements : copied_words(block);
    const auto [source_bytes, target_bytes] = word_bytes(words);
    WordBlock whole{block.source_offset, block.target_offset, {}, {}};
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      whole.steps.push_back({block.counts[d], block.source_strides[d], block.target_strides[d]});
    const bool long_run = !computes_ && block.run_bytes > source_bytes;
    if (long_run) whole.steps.push_back({block.run_bytes / source_bytes, source_bytes, source_bytes});
    const bool boxes = is_transposed(whole.steps, block.run_bytes, long_run);
    std::vector<WordBlock> blocks;
    if (boxes)
      for (const WordBlock& part : cut_into_boxes(whole, source_bytes, target_bytes, max_box_words(words)))
        split_long_dimensions(part, blocks);
    else
      split_long_dimensions(whole, blocks);
    for (const WordBlock& part : blocks) add(copy, part, words, boxes);
  }

  /// Makes launches of all groups.
  void finish() {
    for (const auto& [key, blocks] : blocks_) add_group(key, blocks);
    for (TilePart& part : parts) make_group_table(part);
  }

  OperationValues operation;
  std::vector<TilePart> parts;
  std::vector<TileGroup> groups;
  std::vector<TileDimension> dimensions;
  std::vector<TilePlace> places;
  std::vector<BoxRead> box_reads;
  std::vector<std::int32_t> box_writes;
  std::vector<std::uint32_t> group_of_tile;

 private:
  /// The common properties of the blocks of a launch, and the shape of those of a group.
  struct Key {
    TileWords words;
    bool boxes;
    std::uint32_t source_window, target_window;  // launch_addresses of the copies' addresses each
    std::vector<std::int64_t> shape;             // number of steps' dimensions, then all dimensions

    auto launch() const { return std::make_tuple(boxes, words, source_window, target_window); }
    bool operator<(const Key& other) const {
      return launch() != other.launch() ? launch() < other.launch() : shape < other.shape;
    }
  };

  void add(const DeviceCopy& copy, const WordBlock& block, TileWords words, bool boxes) {
    const auto source = static_cast<std::uint32_t>(copy.source), target = static_cast<std::uint32_t>(copy.target);
    if (block.steps.size() > static_cast<std::size_t>(max_tile_dims))
      throw Error(text("a device copies blocks of at most ", max_tile_dims, " dimensions, got ", block.steps.size()));
    Key key{words, boxes, source / launch_addresses, target / launch_addresses, {}};
    key.shape.push_back(static_cast<std::int64_t>(block.steps.size()));
    for (const auto* list : {&block.steps, &block.box})
      for (const WordDimension& dimension : *list)
        key.shape.insert(key.shape.end(), {dimension.count, dimension.source_stride, dimension.target_stride});
    blocks_[std::move(key)].push_back(
        {block.source_offset, block.target_offset, source % launch_addresses, target % launch_addresses});
  }

  TileWords copied_words(const CopyBlock& block) const {
    std::int64_t mixed = block.run_bytes | block.source_offset | block.target_offset | alignment_;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      mixed |= block.source_strides[d] | block.target_strides[d];
    std::int64_t log2 = 0;
    while ((mixed >> log2) % 2 == 0) ++log2;
    return static_cast<TileWords>(log2);
  }

  /// Bytes of a word in the source and in the target.
  std::pair<std::int64_t, std::int64_t> word_bytes(TileWords words) const {
    if (words == TileWords::elements) return {source_bytes_, target_bytes_};
    const std::int64_t nbytes = std::int64_t{1} << static_cast<std::int64_t>(words);
    return {nbytes, nbytes};
  }

  std::uint32_t max_box_words(TileWords words) const {
    std::uint32_t count = 0;
    visit_tile_words(words, operation, [&](auto tag) { count = box_tile_words<typename decltype(tag)::type>; });
    return count;
  }

  /// Steps of words that a thread block takes at once.
  std::uint32_t words_at_once(TileWords words) const {
    std::uint32_t count = 0;
    visit_tile_words(words, operation, [&](auto tag) { count = decltype(tag)::type::per_thread * tile_threads; });
    return count;
  }

  static std::vector<WordDimension> dimensions_of(const std::vector<std::int64_t>& shape, std::size_t first,
                                                  std::size_t end) {
    std::vector<WordDimension> result;
    for (std::size_t d = first; d < end; ++d) result.push_back({shape[3 * d + 1], shape[3 * d + 2], shape[3 * d + 3]});
    return result;
  }

  /// Adds a group, its dimensions, box and places to the launch of its key.
  void add_group(const Key& key, const std::vector<TilePlace>& blocks) {
    if (parts.empty() || last_launch_ != key.launch()) {
      last_launch_ = key.launch();
      parts.push_back({key.words, key.boxes, std::size_t{key.source_window} * launch_addresses,
                       std::size_t{key.target_window} * launch_addresses, groups.size(), 0, 0, 0, 0});
    }
    TilePart& part = parts.back();
    const auto ndim = static_cast<std::size_t>(key.shape[0]);
    TileGroup group;
    group.first_tile = part.tiles;
    group.ndim = static_cast<std::uint32_t>(ndim);
    group.first_dimension = index_of_end(dimensions);
    group.first_place = index_of_end(places);
    const std::uint64_t of_place = add_dimensions(dimensions_of(key.shape, 0, ndim), group);
    group.by_place = LongDivisor(of_place);
    group.steps = of_place * blocks.size();
    places.insert(places.end(), blocks.begin(), blocks.end());
    if (key.boxes) {
      add_box(dimensions_of(key.shape, ndim, key.shape.size() / 3), key.words, group);
      group.tile_steps = std::clamp<std::uint32_t>(max_box_words(key.words) / group.box_words, 1, tile_threads);
    } else {
      group.tile_steps = tile_steps(group.steps, words_at_once(key.words));
    }
    const std::uint64_t tiles = part.tiles + (group.steps + group.tile_steps - 1) / group.tile_steps;
    if (tiles > std::numeric_limits<std::int32_t>::max())
      throw Error(text("the copies take ", tiles, " thread blocks, but a device starts at most 2^31 - 1 at once"));
    part.tiles = static_cast<std::uint32_t>(tiles);
    groups.push_back(group);
    ++part.group_count;
  }

  /// Steps of a tile: several times what a thread block takes at once, if enough tiles for all multiprocessors remain.
  static std::uint32_t tile_steps(std::uint64_t steps, std::uint32_t at_once) {
    constexpr std::uint64_t many_tiles = 8192;
    constexpr std::uint32_t max_times = 4;
    std::uint32_t times = 1;
    while (times < max_times && steps / at_once / times >= 2 * many_tiles) times *= 2;
    return at_once * times;
  }

  /// \return steps of a place.
  std::uint64_t add_dimensions(const std::vector<WordDimension>& steps, TileGroup& group) {
    constexpr std::int64_t max_narrow = std::numeric_limits<std::int32_t>::max();
    std::uint64_t inner = 1;
    group.narrow = 1;
    dimensions.resize(dimensions.size() + steps.size());
    for (std::size_t d = steps.size(); d-- > 0;) {
      TileDimension& dimension = dimensions[group.first_dimension + d];
      dimension.count = static_cast<std::uint32_t>(steps[d].count);
      dimension.by_count = Divisor(dimension.count);
      dimension.source_stride = steps[d].source_stride;
      dimension.target_stride = steps[d].target_stride;
      dimension.by_inner = LongDivisor(inner);
      inner *= static_cast<std::uint64_t>(steps[d].count);
      if (std::abs(steps[d].source_stride) > max_narrow || std::abs(steps[d].target_stride) > max_narrow)
        group.narrow = 0;
    }
    return inner;
  }

  /// Lists the words of a box in the order of the target, and in that of the source.
  void add_box(const std::vector<WordDimension>& box, TileWords words, TileGroup& group) {
    const auto [source_bytes, target_bytes] = word_bytes(words);
    std::vector<BoxRead> reads{{0, 0}};
    std::vector<std::int32_t> writes{0};
    for (const WordDimension& dimension : box) {
      std::vector<BoxRead> inner_reads;
      std::vector<std::int32_t> inner_writes;
      for (std::size_t at = 0; at < reads.size(); ++at)
        for (std::int64_t i = 0; i < dimension.count; ++i) {
          const auto source = static_cast<std::int32_t>(i * (dimension.source_stride / source_bytes)),
                     target = static_cast<std::int32_t>(i * (dimension.target_stride / target_bytes));
          inner_reads.push_back({reads[at].source + source, static_cast<std::uint32_t>(inner_reads.size())});
          inner_writes.push_back(writes[at] + target);
        }
      reads.swap(inner_reads);
      writes.swap(inner_writes);
    }
    std::stable_sort(reads.begin(), reads.end(),
                     [](const BoxRead& a, const BoxRead& b) { return a.source < b.source; });
    group.box_words = static_cast<std::uint32_t>(reads.size());
    group.by_box_words = Divisor(group.box_words);
    group.first_word = index_of_end(box_reads);
    box_reads.insert(box_reads.end(), reads.begin(), reads.end());
    box_writes.insert(box_writes.end(), writes.begin(), writes.end());
  }

  /// Lists the groups of every 2^shift-th tile: a tile's group is this one, or one of few after it.
  void make_group_table(TilePart& part) {
    constexpr std::uint32_t max_entries = 1 << 16;
    while ((part.tiles >> part.shift) > max_entries) ++part.shift;
    part.first_group_of_tile = group_of_tile.size();
    std::size_t group = 0;
    for (std::uint64_t tile = 0; tile < part.tiles; tile += std::uint64_t{1} << part.shift) {
      while (group + 1 < part.group_count && groups[part.first_group + group + 1].first_tile <= tile) ++group;
      group_of_tile.push_back(static_cast<std::uint32_t>(group));
    }
    group_of_tile.push_back(static_cast<std::uint32_t>(part.group_count - 1));
  }

  std::int64_t source_bytes_, target_bytes_;  // of an element
  std::int64_t alignment_;
  bool computes_;
  std::map<Key, std::vector<TilePlace>> blocks_;
  std::tuple<bool, TileWords, std::uint32_t, std::uint32_t> last_launch_;
};

/// Appends a list to the tables. \return its offset.
template <class T>
std::size_t append(const std::vector<T>& list, std::vector<char>& tables) {
  const std::size_t offset = (tables.size() + 255) / 256 * 256, nbytes = list.size() * sizeof(T);
  tables.resize(offset + nbytes);
  if (nbytes > 0) std::memcpy(tables.data() + offset, list.data(), nbytes);
  return offset;
}

}  // namespace

CopyTiles::CopyTiles(const std::vector<DeviceCopy>& copies, const ElementStep& step, std::int64_t alignment) {
  TileBuilder builder(step, alignment);
  for (const DeviceCopy& copy : copies) builder.add(copy);
  builder.finish();
  parts_ = std::move(builder.parts);
  operation_ = builder.operation;
  offsets_ = {append(builder.groups, tables_),     append(builder.dimensions, tables_),
              append(builder.places, tables_),     append(builder.box_reads, tables_),
              append(builder.box_writes, tables_), append(builder.group_of_tile, tables_)};
}

TileLaunch CopyTiles::launch(const TilePart& part, const char* tables, const std::vector<const char*>& sources,
                             const std::vector<char*>& targets) const {
  TileLaunch launch;
  launch.groups = reinterpret_cast<const TileGroup*>(tables + offsets_.groups) + part.first_group;
  launch.dimensions = reinterpret_cast<const TileDimension*>(tables + offsets_.dimensions);
  launch.places = reinterpret_cast<const TilePlace*>(tables + offsets_.places);
  launch.box_reads = reinterpret_cast<const BoxRead*>(tables + offsets_.box_reads);
  launch.box_writes = reinterpret_cast<const std::int32_t*>(tables + offsets_.box_writes);
  launch.group_of_tile =
      reinterpret_cast<const std::uint32_t*>(tables + offsets_.group_of_tile) + part.first_group_of_tile;
  launch.group_count = static_cast<std::uint32_t>(part.group_count);
  launch.shift = part.shift;
  launch.operation = operation_;
  const auto take = [](const auto& from, std::size_t first, auto& to) {
    for (std::size_t i = first; i < std::min<std::size_t>(from.size(), first + launch_addresses); ++i)
      to[i - first] = from[i];
  };
  take(sources, part.first_source, launch.sources);
  take(targets, part.first_target, launch.targets);
  return launch;
}

}  // namespace dace_redist
