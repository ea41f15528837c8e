// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The strided blocks of a message. Start reading at: BlockList.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "layout/strided_block.hpp"

namespace dace_redist {

/// A box of elements of one tensor, and where it lies in the arrays of sender and receiver.
struct Block {
  int tensor = 0;
  StridedBlock box;
};

/// Blocks, each in as many words as its dimensions need: a rank may have a message for every other one. Iterators stay
/// valid when the list is moved.
class BlockList {
  using Word = std::int64_t;
  static constexpr Word max_dims = 32;  // more than max_block_dims
  static constexpr std::size_t fixed_words =
      3;  // tensor and number of dimensions, two offsets; counts and strides follow
  static_assert(max_block_dims < max_dims);

  static std::size_t ndim_of(Word first) { return static_cast<std::size_t>(first % max_dims); }
  static std::size_t words_of(Word first) { return fixed_words + 3 * ndim_of(first); }

 public:
  class Iterator {
   public:
    explicit Iterator(const Word* words) : words_(words) {}

    int tensor() const { return static_cast<int>(words_[0] / max_dims); }
    /// Its elements.
    Word count() const {
      return std::accumulate(words_ + fixed_words, words_ + fixed_words + ndim_of(words_[0]), Word{1},
                             std::multiplies<Word>());
    }
    /// Sets a box, which it returns; of its counts and strides, those of its dimensions only.
    const StridedBlock& read(StridedBlock& box) const {
      const std::size_t ndim = ndim_of(words_[0]);
      const Word* const counts = words_ + fixed_words;
      box.ndim = static_cast<int>(ndim);
      box.source_offset = words_[1];
      box.target_offset = words_[2];
      std::copy_n(counts, ndim, box.counts.begin());
      std::copy_n(counts + ndim, ndim, box.source_strides.begin());
      std::copy_n(counts + 2 * ndim, ndim, box.target_strides.begin());
      return box;
    }
    Block operator*() const {
      Block block{tensor(), {}};
      read(block.box);
      return block;
    }
    Iterator& operator++() {
      words_ += words_of(words_[0]);
      return *this;
    }
    bool operator!=(const Iterator& other) const { return words_ != other.words_; }

   private:
    const Word* words_;
  };

  Iterator begin() const { return Iterator(words_.data()); }
  Iterator end() const { return Iterator(words_.data() + words_.size()); }
  bool empty() const { return words_.empty(); }
  Block front() const { return *begin(); }

  void push_back(const Block& block) {
    const std::size_t first = words_.size(), ndim = static_cast<std::size_t>(block.box.ndim);
    words_.resize(first + fixed_words + 3 * ndim);
    Word* const words = words_.data() + first;
    words[0] = block.tensor * max_dims + block.box.ndim;
    words[1] = block.box.source_offset;
    words[2] = block.box.target_offset;
    Word* next = std::copy_n(block.box.counts.begin(), ndim, words + fixed_words);
    next = std::copy_n(block.box.source_strides.begin(), ndim, next);
    std::copy_n(block.box.target_strides.begin(), ndim, next);
  }

  /// Appends blocks as blocks of a tensor.
  void append(const BlockList& others, int tensor) {
    std::size_t block = words_.size();
    words_.insert(words_.end(), others.words_.begin(), others.words_.end());
    for (; block < words_.size(); block += words_of(words_[block]))
      words_[block] = tensor * max_dims + words_[block] % max_dims;
  }

  /// All about the blocks but their offsets.
  std::vector<Word> shape() const {
    std::vector<Word> words = words_;
    for (std::size_t block = 0; block < words.size(); block += words_of(words[block]))
      words[block + 1] = words[block + 2] = 0;
    return words;
  }

 private:
  std::vector<Word> words_;
};

}  // namespace dace_redist
