// SPDX-License-Identifier: BSD-3-Clause
#include "device/copy_tiles.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "copy/copy_block.hpp"
#include "device/element_support.hpp"
#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

constexpr std::int64_t max_group_steps = std::numeric_limits<std::int32_t>::max();

/// A dimension of words.
using WordDimension = std::array<std::int64_t, 3>;
enum : std::size_t { count, source_stride, target_stride };  // strides in bytes

/// Blocks of words that one group can hold.
struct Shape {
  bool transposed;  ///< whether the last two dimensions are the columns and rows of transposed tiles
  TileWords words;
  std::size_t first_source, first_target;  ///< of the addresses of a launch
  std::vector<WordDimension> dimensions;

  auto launch() const { return std::make_tuple(transposed, words, first_source, first_target); }
  bool operator<(const Shape& other) const {
    return std::make_pair(launch(), dimensions) < std::make_pair(other.launch(), other.dimensions);
  }
};

std::int64_t product_of_counts(const std::vector<WordDimension>& dimensions) {
  std::int64_t product = 1;
  for (const WordDimension& dimension : dimensions) product *= dimension[count];
  return product;
}

/// Moves the dimension in which neighbouring words of the source lie to the end, if it is not the last one and source
/// and target have too few neighbours in common. \return whether it did.
bool transpose(std::vector<WordDimension>& dimensions) {
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

/// Fills the tables of a CopyTiles.
class TileBuilder {
 public:
  TileBuilder(CopyTiles& tiles, const ElementStep& step, std::int64_t alignment)
      : tiles_(tiles), step_(step), alignment_(alignment) {
    if (step.kernel) operation_ = OperationValues(step.kernel->operation());
  }

  /// Puts a copy into the group of its shape.
  void add(const DeviceCopy& copy) {
    const bool computes = step_.kernel != nullptr;
    const CopyBlock block = computes ? make_element_block(copy.block, step_.source_bytes, step_.target_bytes)
                                     : make_copy_block(copy.block, step_.source_bytes);
    if (block.run_bytes == 0) return;
    const auto source = static_cast<std::size_t>(copy.source), target = static_cast<std::size_t>(copy.target);
    Shape shape{false,
                computes ? TileWords::elements : copied_words(block),
                source - source % launch_addresses,
                target - target % launch_addresses,
                {}};
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      shape.dimensions.push_back({block.counts[d], block.source_strides[d], block.target_strides[d]});
    const std::int64_t word_bytes = std::int64_t{1} << static_cast<std::int64_t>(shape.words);
    if (!computes && block.run_bytes > word_bytes)
      shape.dimensions.push_back({block.run_bytes / word_bytes, word_bytes, word_bytes});
    else
      shape.transposed = transpose(shape.dimensions);
    add(std::move(shape),
        {block.source_offset, block.target_offset, static_cast<std::uint32_t>(source - shape.first_source),
         static_cast<std::uint32_t>(target - shape.first_target)});
  }

  /// Makes launches of all groups.
  void finish() {
    for (const auto& [shape, places] : places_) {
      const std::int64_t at_once = max_group_steps / product_of_counts(shape.dimensions);
      for (std::size_t first = 0; first < places.size(); first += static_cast<std::size_t>(at_once))
        add_group(shape, places, first, std::min(places.size(), first + static_cast<std::size_t>(at_once)));
    }
  }

 private:
  /// Adds a block, in halves if its words are too many for a group.
  void add(Shape shape, TilePlace place) {
    if (product_of_counts(shape.dimensions) <= max_group_steps) {
      places_[std::move(shape)].push_back(place);
      return;
    }
    const auto longest = std::max_element(shape.dimensions.begin(), shape.dimensions.end());
    const std::int64_t half = (*longest)[count] / 2;
    Shape rest = shape;
    rest.dimensions[static_cast<std::size_t>(longest - shape.dimensions.begin())][count] -= half;
    TilePlace behind = place;
    behind.source_offset += half * (*longest)[source_stride];
    behind.target_offset += half * (*longest)[target_stride];
    (*longest)[count] = half;
    add(std::move(shape), place);
    add(std::move(rest), behind);
  }

  /// The longest words that divide everything.
  TileWords copied_words(const CopyBlock& block) const {
    std::int64_t mixed = block.run_bytes | block.source_offset | block.target_offset | alignment_;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      mixed |= block.source_strides[d] | block.target_strides[d];
    std::int64_t log2 = 0;
    while ((mixed >> log2) % 2 == 0) ++log2;
    return static_cast<TileWords>(log2);
  }

  void add_group(const Shape& shape, const std::vector<TilePlace>& places, std::size_t first, std::size_t end) {
    if (tiles_.parts.empty() || launch_ != shape.launch()) {
      launch_ = shape.launch();
      tiles_.parts.push_back(
          {shape.words, shape.transposed, shape.first_source, shape.first_target, tiles_.groups.size(), 0, 0});
    }
    TilePart& part = tiles_.parts.back();
    TileGroup group;
    group.first_tile = part.tiles;
    group.first_dimension = static_cast<std::uint32_t>(tiles_.dimensions.size());
    group.first_place = static_cast<std::uint32_t>(tiles_.places.size());
    std::uint32_t tile_steps = 1;
    visit_tile_words(shape.words, operation_, [&](auto tag) {
      using Words = typename decltype(tag)::type;
      if (!shape.transposed) tile_steps = words_in_flight<Words> * tile_threads;
      if (shape.transposed) set_sides(shape, transposed_words<Words>, group);
    });
    std::int64_t steps = static_cast<std::int64_t>(end - first);
    for (const WordDimension& dimension : shape.dimensions) {
      const std::size_t behind = shape.dimensions.size() - static_cast<std::size_t>(&dimension - &shape.dimensions[0]);
      steps *= add_dimension(dimension, shape.transposed && behind == 2   ? group.columns.length
                                        : shape.transposed && behind == 1 ? group.rows.length
                                                                          : 1);
    }
    group.ndim = static_cast<std::uint32_t>(shape.dimensions.size());
    group.steps = static_cast<std::uint32_t>(steps);
    tiles_.places.insert(tiles_.places.end(), places.begin() + static_cast<std::ptrdiff_t>(first),
                         places.begin() + static_cast<std::ptrdiff_t>(end));
    tiles_.groups.push_back(group);
    ++part.group_count;
    const std::int64_t tiles = part.tiles + (steps + tile_steps - 1) / tile_steps;
    if (tiles > max_group_steps)
      throw Error(text("the copies take ", tiles, " thread blocks, but a device starts at most 2^31 - 1 at once"));
    part.tiles = static_cast<std::uint32_t>(tiles);
  }

  /// Adds a dimension in parts of so many words. \return their number.
  std::int64_t add_dimension(const WordDimension& words, std::int64_t length) {
    TileDimension& dimension = tiles_.dimensions.emplace_back();
    dimension.count = static_cast<std::uint32_t>((words[count] + length - 1) / length);
    dimension.by_count = Divisor(dimension.count);
    dimension.source_stride = length * words[source_stride];
    dimension.target_stride = length * words[target_stride];
    return dimension.count;
  }

  /// Makes tiles as large as fit, with rows of whole cache lines first.
  static void set_sides(const Shape& shape, std::int64_t words, TileGroup& group) {
    constexpr std::int64_t row_words = 32;
    const WordDimension &columns = shape.dimensions[shape.dimensions.size() - 2], &rows = shape.dimensions.back();
    const std::int64_t width = std::min(columns[count], words / std::min(rows[count], row_words));
    const auto side = [](const WordDimension& dimension, std::int64_t max_length) {
      const std::int64_t parts = (dimension[count] + max_length - 1) / max_length;
      TileSide made;
      made.count = static_cast<std::uint32_t>(dimension[count]);
      made.length = static_cast<std::uint32_t>((dimension[count] + parts - 1) / parts);
      made.by_length = Divisor(made.length);
      made.source_stride = dimension[source_stride];
      made.target_stride = dimension[target_stride];
      return made;
    };
    group.columns = side(columns, width);
    group.rows = side(rows, words / width);
  }

  CopyTiles& tiles_;
  const ElementStep& step_;
  std::int64_t alignment_;
  OperationValues operation_;
  std::map<Shape, std::vector<TilePlace>> places_;
  decltype(std::declval<Shape>().launch()) launch_;
};

void mark(std::vector<bool>& used, int number) {
  if (number < 0) throw Error("a copy on a device has an address of negative number");
  const auto index = static_cast<std::size_t>(number);
  if (used.size() <= index) used.resize(index + 1);
  used[index] = true;
}

/// The largest number of 1, 2, 4, 8, 16 that divides all addresses in use.
/// \param step_bytes  of an element that is computed with, else 1. \throws Error if it is not aligned to its size.
template <class Address>
std::int64_t common_alignment(const char* side, const std::vector<bool>& used, const std::vector<Address>& addresses,
                              std::int64_t step_bytes) {
  if (addresses.size() < used.size())
    throw Error(text("copies on a device use ", side, " address ", used.size() - 1, " of ", addresses.size()));
  std::uintptr_t all = 16;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) all |= reinterpret_cast<std::uintptr_t>(addresses[i]);
  const auto alignment = static_cast<std::int64_t>(all & (~all + 1));
  if (alignment < step_bytes)
    throw Error(text("elements of ", step_bytes, " bytes that are computed with must be aligned to their size on ",
                     "a GPU, but the address of the ", side, " is a multiple of ", alignment,
                     " bytes only; copy the array to memory of its own"));
  return alignment;
}

}  // namespace

CopyTiles::CopyTiles(const std::vector<DeviceCopy>& copies, const ElementStep& step, std::int64_t alignment) {
  TileBuilder builder(*this, step, alignment);
  for (const DeviceCopy& copy : copies) builder.add(copy);
  builder.finish();
}

TiledCopies::TiledCopies(std::vector<DeviceCopy> copies, const ElementStep& step)
    : copies_(std::move(copies)), step_(step) {
  check_device_step(step);
  if (step.kernel) {
    kernel_ = *step.kernel;
    step_.kernel = &kernel_;
    operation_ = OperationValues(kernel_.operation());
  }
  for (const DeviceCopy& copy : copies_) {
    mark(used_sources_, copy.source);
    mark(used_targets_, copy.target);
  }
}

void TiledCopies::prepare(std::int64_t alignment) {
  const CopyTiles tiles(copies_, step_, alignment);
  const auto table = [this](const auto& list) { return make_table(list.data(), list.size() * sizeof list[0]); };
  variants_[static_cast<std::size_t>(alignment)] = {tiles.parts, table(tiles.groups), table(tiles.dimensions),
                                                    table(tiles.places)};
}

std::int64_t TiledCopies::alignment_of(const std::vector<const char*>& sources,
                                       const std::vector<char*>& targets) const {
  const bool computes = step_.kernel != nullptr;
  const std::int64_t source = common_alignment("source", used_sources_, sources, computes ? step_.source_bytes : 1),
                     target = common_alignment("target", used_targets_, targets, computes ? step_.target_bytes : 1);
  return computes ? 16 : std::min(source, target);
}

void TiledCopies::launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream) {
  const std::int64_t alignment = alignment_of(sources, targets);
  const std::optional<Variant>& variant = variants_[static_cast<std::size_t>(alignment)];
  if (!variant) prepare(alignment);
  for (const TilePart& part : variant->parts) {
    TileLaunch launch;
    launch.groups = reinterpret_cast<const TileGroup*>(variant->groups.get()) + part.first_group;
    launch.dimensions = reinterpret_cast<const TileDimension*>(variant->dimensions.get());
    launch.places = reinterpret_cast<const TilePlace*>(variant->places.get());
    launch.group_count = part.group_count;
    launch.operation = operation_;
    const auto take = [](const auto& from, std::size_t first, auto& to) {
      for (std::size_t i = first; i < std::min<std::size_t>(from.size(), first + launch_addresses); ++i)
        to[i - first] = from[i];
    };
    take(sources, part.first_source, launch.sources);
    take(targets, part.first_target, launch.targets);
    start(part, launch, stream);
  }
}

}  // namespace dace_redist
