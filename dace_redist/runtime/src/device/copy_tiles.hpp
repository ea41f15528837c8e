// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans the launches that make a list of copies on a device: words, groups of equal blocks, tiles.
/// Start reading at: CopyTiles.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "copy/copy_block.hpp"
#include "device/bank_conflicts.hpp"
#include "device/box_shape.hpp"
#include "device/device.hpp"
#include "device/tile_kernels.hpp"

namespace dace_redist {

/// Which words a kernel copies or computes with.
enum class TileWords : std::int64_t { bytes1, bytes2, bytes4, bytes8, bytes16, elements, any_elements };

/// The launch of one kernel.
struct TilePart {
  TileWords words = TileWords::bytes1;
  bool boxes = false;
  std::size_t first_source = 0, first_target = 0;  ///< of the addresses that the launch takes
  std::size_t first_group = 0, group_count = 0;
  std::size_t first_group_of_tile = 0;
  std::uint32_t tiles = 0, shift = 0;
};

template <class T>
struct TypeTag {
  using type = T;
};

namespace detail {

/// Whether there is a kernel for these types of their own: the ones that numbers are computed with most.
inline bool has_own_kernel(ElementType source, ElementType target) {
  if (source == ElementType::int32 || source == ElementType::int64) return source == target;
  return source >= ElementType::float32 && target >= ElementType::float32;
}

template <class Visit>
void visit_number_type(ElementType type, const Visit& visit) {
  if (type == ElementType::float32) return visit(TypeTag<float>());
  if (type == ElementType::float64) return visit(TypeTag<double>());
  if (type == ElementType::complex64) return visit(TypeTag<Complex<float>>());
  visit(TypeTag<Complex<double>>());
}

template <class From, class To, class Visit>
void visit_element_words(TypeTag<From>, TypeTag<To>, const Visit& visit) {
  if constexpr (converts<From, To>()) visit(TypeTag<ElementWords<From, To>>());
}

}  // namespace detail

/// Calls `visit` with the TypeTag of a class of tile_words.hpp.
template <class Visit>
void visit_tile_words(TileWords words, const OperationValues& operation, const Visit& visit) {
  switch (words) {
    case TileWords::bytes1:
      return visit(TypeTag<CopyWords<std::uint8_t>>());
    case TileWords::bytes2:
      return visit(TypeTag<CopyWords<std::uint16_t>>());
    case TileWords::bytes4:
      return visit(TypeTag<CopyWords<std::uint32_t>>());
    case TileWords::bytes8:
      return visit(TypeTag<CopyWords<std::uint64_t>>());
    case TileWords::bytes16:
      return visit(TypeTag<CopyWords<Word16>>());
    case TileWords::any_elements:
      return visit(TypeTag<AnyElementWords>());
    case TileWords::elements:
      break;
  }
  if (operation.source == ElementType::int32) return visit(TypeTag<ElementWords<std::int32_t, std::int32_t>>());
  if (operation.source == ElementType::int64) return visit(TypeTag<ElementWords<std::int64_t, std::int64_t>>());
  detail::visit_number_type(operation.source, [&](auto from) {
    detail::visit_number_type(operation.target, [&](auto to) { detail::visit_element_words(from, to, visit); });
  });
}

/// The largest number of 1, 2, 4, 8, 16 that divides an address.
inline std::int64_t alignment_of(const void* address) {
  const auto number = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) | 16);
  return number & -number;
}

/// Everything that the launches of a list of copies read; prepared for addresses of certain alignments.
class CopyTiles {
 public:
  /// \param sources, targets  alignments of the addresses that the copies name.
  CopyTiles(const std::vector<DeviceCopy>& copies, const ElementStep& step, const std::vector<std::int64_t>& sources,
            const std::vector<std::int64_t>& targets)
      : source_bytes_(step.source_bytes), target_bytes_(step.target_bytes) {
    if (step.kernel != nullptr) operation = OperationValues(step.kernel->operation());
    computes_ = step.kernel != nullptr;
    for (const DeviceCopy& copy : copies)
      add(copy, sources[static_cast<std::size_t>(copy.source)], targets[static_cast<std::size_t>(copy.target)]);
    for (const auto& [key, group] : found_) finish(key, group);
    for (TilePart& part : parts) make_group_table(part);
    found_.clear();
  }

  OperationValues operation;
  std::vector<TilePart> parts;  ///< a launch each
  std::vector<TileGroup> groups;
  std::vector<TileDimension> dimensions;
  std::vector<TilePlace> places;
  std::vector<BoxRead> box_reads;
  std::vector<std::int32_t> box_writes;
  std::vector<std::uint32_t> group_of_tile;

 private:
  /// What blocks have in common that are copied by one launch, then what those of a group have.
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

  void add(const DeviceCopy& copy, std::int64_t source_alignment, std::int64_t target_alignment) {
    const CopyBlock block = computes_ ? make_element_block(copy.block, source_bytes_, target_bytes_)
                                      : make_copy_block(copy.block, source_bytes_);
    if (block.run_bytes == 0) return;
    const TileWords words = computes_ ? element_words(source_alignment, target_alignment)
                                      : copied_words(block, source_alignment | target_alignment);
    const std::int64_t word_bytes = computes_ ? 0 : std::int64_t{1} << static_cast<std::int64_t>(words);
    WordBlock all{block.source_offset, block.target_offset, {}, {}};
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      all.steps.push_back({block.counts[d], block.source_strides[d], block.target_strides[d]});
    const bool long_run = !computes_ && block.run_bytes > word_bytes;
    if (long_run) all.steps.push_back({block.run_bytes / word_bytes, word_bytes, word_bytes});
    std::vector<WordBlock> cut{all};
    const bool boxes = lies_transposed(all.steps, block.run_bytes, long_run);
    if (boxes) {
      std::int64_t most_words = 0;
      visit_tile_words(words, operation, [&](auto tag) { most_words = box_tile_words<typename decltype(tag)::type>; });
      cut = cut_into_boxes(all, computes_ ? source_bytes_ : word_bytes, computes_ ? target_bytes_ : word_bytes,
                           most_words);
    }
    std::vector<WordBlock> blocks;
    for (const WordBlock& part : cut) split_long_dimensions(part, blocks);
    for (const WordBlock& part : blocks) add(copy, part, words, boxes);
  }

  void add(const DeviceCopy& copy, const WordBlock& block, TileWords words, bool boxes) {
    const auto source = static_cast<std::uint32_t>(copy.source), target = static_cast<std::uint32_t>(copy.target);
    if (block.steps.size() > static_cast<std::size_t>(max_tile_dims))
      throw Error(
          text("a block of ", block.steps.size(), " dimensions is too much for a device: at most ", max_tile_dims));
    Key key{words, boxes, source / launch_addresses, target / launch_addresses, {}};
    key.shape.push_back(static_cast<std::int64_t>(block.steps.size()));
    for (const auto* list : {&block.steps, &block.box})
      for (const WordDimension& dimension : *list)
        key.shape.insert(key.shape.end(), {dimension.count, dimension.source_stride, dimension.target_stride});
    found_[std::move(key)].push_back(
        {block.source_offset, block.target_offset, source % launch_addresses, target % launch_addresses});
  }

  static TileWords copied_words(const CopyBlock& block, std::int64_t alignments) {
    std::int64_t mixed = block.run_bytes | block.source_offset | block.target_offset | alignments | 16;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
      mixed |= block.source_strides[d] | block.target_strides[d];
    std::int64_t words = 0;
    while ((mixed >> words) % 2 == 0) ++words;
    return static_cast<TileWords>(words);
  }

  /// Strides and offsets are multiples of an element's bytes.
  TileWords element_words(std::int64_t source_alignment, std::int64_t target_alignment) const {
    const bool aligned = source_alignment >= source_bytes_ && target_alignment >= target_bytes_;
    return aligned && detail::has_own_kernel(operation.source, operation.target) ? TileWords::elements
                                                                                 : TileWords::any_elements;
  }

  static std::vector<WordDimension> dimensions_of(const std::vector<std::int64_t>& shape, std::size_t first,
                                                  std::size_t end) {
    std::vector<WordDimension> result;
    for (std::size_t d = first; d < end; ++d) result.push_back({shape[3 * d + 1], shape[3 * d + 2], shape[3 * d + 3]});
    return result;
  }

  /// Adds a group to the launch that its key names, and its dimensions, box and places.
  void finish(const Key& key, const std::vector<TilePlace>& found) {
    const bool same = !parts.empty() && last_launch_ == key.launch();
    if (!same) {
      last_launch_ = key.launch();
      parts.push_back({key.words, key.boxes, std::size_t{key.source_window} * launch_addresses,
                       std::size_t{key.target_window} * launch_addresses, groups.size(), 0, 0, 0, 0});
    }
    TilePart& part = parts.back();
    const auto ndim = static_cast<std::size_t>(key.shape[0]);
    const std::vector<WordDimension> steps = dimensions_of(key.shape, 0, ndim),
                                     box = dimensions_of(key.shape, ndim, key.shape.size() / 3);
    TileGroup group;
    group.first_tile = part.tiles;
    group.ndim = static_cast<std::uint32_t>(ndim);
    group.first_dimension = index_of(dimensions);
    group.first_place = index_of(places);
    const std::uint64_t of_place = add_dimensions(steps, group);
    group.by_place = LongDivisor(of_place);
    group.steps = of_place * found.size();
    places.insert(places.end(), found.begin(), found.end());
    if (key.boxes) add_box(box, key.words, group);
    visit_tile_words(key.words, operation, [&](auto tag) {
      using Words = typename decltype(tag)::type;
      group.tile_steps = key.boxes ? std::clamp<std::uint32_t>(box_tile_words<Words> / group.box_words, 1, tile_threads)
                                   : tile_steps(group.steps, Words::per_thread * tile_threads);
    });
    const std::uint64_t tiles = part.tiles + (group.steps + group.tile_steps - 1) / group.tile_steps;
    if (tiles > std::numeric_limits<std::int32_t>::max())
      throw Error(text("these copies take ", tiles, " thread blocks, more than a device starts at once"));
    part.tiles = static_cast<std::uint32_t>(tiles);
    groups.push_back(group);
    ++part.group_count;
  }

  /// Tiles of more than one word per read of a thread, where there are enough of them for all multiprocessors.
  static std::uint32_t tile_steps(std::uint64_t steps, std::uint32_t at_once) {
    constexpr std::uint64_t many_tiles = 8192;
    constexpr std::uint32_t most = 4;
    std::uint32_t times = 1;
    while (times < most && steps / at_once / times >= 2 * many_tiles) times *= 2;
    return at_once * times;
  }

  template <class T>
  static std::uint32_t index_of(const std::vector<T>& list) {
    if (list.size() > std::numeric_limits<std::uint32_t>::max())
      throw Error("these copies are too many for one launch of a device");
    return static_cast<std::uint32_t>(list.size());
  }

  /// \return steps of a place.
  std::uint64_t add_dimensions(const std::vector<WordDimension>& steps, TileGroup& group) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
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
      if (std::abs(steps[d].source_stride) > most || std::abs(steps[d].target_stride) > most) group.narrow = 0;
    }
    return inner;
  }

  /// Lists the words of a box in the order of the target, and in that of the source.
  void add_box(const std::vector<WordDimension>& box, TileWords words, TileGroup& group) {
    const std::int64_t word_bytes = std::int64_t{1} << static_cast<std::int64_t>(words);
    const std::int64_t source_bytes = computes_ ? source_bytes_ : word_bytes,
                       target_bytes = computes_ ? target_bytes_ : word_bytes;
    std::vector<std::int64_t> sources{0}, targets{0};
    for (const WordDimension& dimension : box) {
      std::vector<std::int64_t> inner_sources, inner_targets;
      for (std::size_t at = 0; at < sources.size(); ++at)
        for (std::int64_t i = 0; i < dimension.count; ++i) {
          inner_sources.push_back(sources[at] + i * (dimension.source_stride / source_bytes));
          inner_targets.push_back(targets[at] + i * (dimension.target_stride / target_bytes));
        }
      sources.swap(inner_sources);
      targets.swap(inner_targets);
    }
    std::vector<std::uint32_t> order(sources.size());
    for (std::size_t at = 0; at < order.size(); ++at) order[at] = static_cast<std::uint32_t>(at);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return sources[a] < sources[b]; });
    group.box_words = static_cast<std::uint32_t>(sources.size());
    group.by_box_words = Divisor(group.box_words);
    group.first_word = index_of(box_reads);
    std::vector<BoxRead> reads;
    for (const std::uint32_t at : order) reads.push_back({static_cast<std::int32_t>(sources[at]), at});
    visit_tile_words(words, operation,
                     [&](auto tag) { group.gap_shift = best_gap_shift<typename decltype(tag)::type::Source>(reads); });
    box_reads.insert(box_reads.end(), reads.begin(), reads.end());
    for (const std::int64_t target : targets) box_writes.push_back(static_cast<std::int32_t>(target));
  }

  /// So that a tile finds its group at once, or among few.
  void make_group_table(TilePart& part) {
    constexpr std::uint32_t longest_table = 1 << 16;
    while ((part.tiles >> part.shift) > longest_table) ++part.shift;
    part.first_group_of_tile = group_of_tile.size();
    std::size_t group = 0;
    for (std::uint64_t tile = 0; tile < part.tiles; tile += std::uint64_t{1} << part.shift) {
      while (group + 1 < part.group_count && groups[part.first_group + group + 1].first_tile <= tile) ++group;
      group_of_tile.push_back(static_cast<std::uint32_t>(group));
    }
    group_of_tile.push_back(static_cast<std::uint32_t>(part.group_count - 1));
  }

  std::int64_t source_bytes_, target_bytes_;
  bool computes_ = false;
  std::map<Key, std::vector<TilePlace>> found_;
  std::tuple<bool, TileWords, std::uint32_t, std::uint32_t> last_launch_;
};

/// What a launch of a part reads. \param tables  pointers to whole lists, wherever they are.
inline TileLaunch tile_launch(const CopyTiles& tiles, const TilePart& part, TileLaunch tables,
                              const std::vector<const char*>& sources, const std::vector<char*>& targets) {
  tables.groups += part.first_group;
  tables.group_of_tile += part.first_group_of_tile;
  tables.group_count = static_cast<std::uint32_t>(part.group_count);
  tables.shift = part.shift;
  tables.operation = tiles.operation;
  const auto take = [](const auto& from, std::size_t first, auto& to) {
    for (std::size_t i = first; i < std::min<std::size_t>(from.size(), first + launch_addresses); ++i)
      to[i - first] = from[i];
  };
  take(sources, part.first_source, tables.sources);
  take(targets, part.first_target, tables.targets);
  return tables;
}

/// Copies, and the tiles for them that were prepared for addresses of different alignments.
/// \tparam Prepared  made of CopyTiles.
template <class Prepared>
class PreparedCopies {
 public:
  PreparedCopies(std::vector<DeviceCopy> copies, const ElementStep& step) : copies_(std::move(copies)), step_(step) {
    if (step.kernel != nullptr) {
      kernel_ = *step.kernel;
      step_.kernel = &kernel_;
    }
    for (const DeviceCopy& copy : copies_) {
      if (copy.source < 0 || copy.target < 0) throw Error("a copy on a device names an address of negative number");
      mark(used_sources_, copy.source);
      mark(used_targets_, copy.target);
    }
  }
  PreparedCopies(const PreparedCopies&) = delete;
  PreparedCopies& operator=(const PreparedCopies&) = delete;

  /// What is prepared for addresses that are aligned like these, or less.
  Prepared& find(const std::vector<const char*>& sources, const std::vector<char*>& targets) {
    return find(alignments(used_sources_, sources), alignments(used_targets_, targets));
  }

  /// Prepares for the alignment that whole allocations have.
  void prepare() { find(Alignments(used_sources_.size(), 16), Alignments(used_targets_.size(), 16)); }

 private:
  using Alignments = std::vector<std::int64_t>;
  static constexpr std::size_t most_mixed = 8;  // variants for which each address has its own alignment

  static void mark(std::vector<bool>& used, int number) {
    const auto index = static_cast<std::size_t>(number);
    if (used.size() <= index) used.resize(index + 1);
    used[index] = true;
  }

  template <class Address>
  static Alignments alignments(const std::vector<bool>& used, const std::vector<Address>& addresses) {
    if (addresses.size() < used.size())
      throw Error(text("copies on a device name address ", used.size() - 1, " of ", addresses.size()));
    Alignments result(used.size(), 16);
    for (std::size_t i = 0; i < used.size(); ++i)
      if (used[i]) result[i] = alignment_of(addresses[i]);
    return result;
  }

  Prepared& find(Alignments sources, Alignments targets) {
    auto found = prepared_.find({sources, targets});
    if (found == prepared_.end() && prepared_.size() >= most_mixed) {  // the smallest alignment fits all addresses
      std::int64_t least = 16;
      for (const Alignments* list : {&sources, &targets})
        for (const std::int64_t alignment : *list) least = std::min(least, alignment);
      sources.assign(sources.size(), least);
      targets.assign(targets.size(), least);
      found = prepared_.find({sources, targets});
    }
    if (found == prepared_.end()) {
      auto made = std::make_unique<Prepared>(CopyTiles(copies_, step_, sources, targets));
      found = prepared_.emplace(std::make_pair(sources, targets), std::move(made)).first;
    }
    return *found->second;
  }

  std::vector<DeviceCopy> copies_;
  ElementStep step_;
  ElementKernel kernel_;
  std::vector<bool> used_sources_, used_targets_;
  std::map<std::pair<Alignments, Alignments>, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace dace_redist
