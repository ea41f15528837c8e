// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Computation on elements while they are copied: conversion, scaling, addition to the target, reductions.
/// Start reading at: ElementOperation.

#include <complex>
#include <cstddef>
#include <cstdint>

#include "copy/copy_block.hpp"
#include "core/element_type.hpp"
#include "dace_redist_types.h"

namespace dace_redist {

namespace detail {
class LineWriter;
}

/// Combination of an incoming element and the current one: it is replaced, or both are reduced to one.
enum class Reduction : std::int64_t { none, sum, prod, min, max };

inline constexpr std::int64_t reduction_count = 5;
inline constexpr const char* reduction_names[reduction_count] = {"none", "sum", "prod", "min", "max"};

/// `target = alpha * source + beta * target`, or with a reduction `target = reduction(alpha * source, target)`; the
/// source is converted to the target's type first, and conjugated if asked so. Where beta is 0 the target is not read.
/// Integers wrap around.
///
/// With a wire type the source is converted to that before: of an ElementKernel each element, of a plan those that move
/// between nodes. An integer that does not fit is an error.
struct ElementOperation {
  ElementType source = ElementType::opaque, target = ElementType::opaque;
  std::complex<double> alpha{1}, beta{0};
  bool conjugate = false;
  Reduction reduction = Reduction::none;
  ElementType wire = ElementType::opaque;        ///< opaque: none
  bool wire_within_nodes = false;                ///< of a plan: the wire type is that of all elements
  ElementType accumulate = ElementType::opaque;  ///< of a plan: type of the reduction; opaque: the target's
  bool reproducible = false;                     ///< of a plan: the reduction is a tree of the replicas

  /// True if elements are only copied.
  bool is_copy() const {
    return source == target && alpha == 1.0 && beta == 0.0 && !conjugate && reduction == Reduction::none &&
           wire == ElementType::opaque;
  }
  bool operator==(const ElementOperation& other) const {
    return source == other.source && target == other.target && alpha == other.alpha && beta == other.beta &&
           conjugate == other.conjugate && reduction == other.reduction && wire == other.wire &&
           wire_within_nodes == other.wire_within_nodes && accumulate == other.accumulate &&
           reproducible == other.reproducible;
  }
};

/// The loops of one ElementOperation, selected once by its types.
class DR_API ElementKernel {
 public:
  /// A row of elements, at strides in bytes.
  struct Row {
    const char* source;
    char* target;
    std::int64_t source_stride, target_stride, count;
  };

  /// Rows of contiguous elements of the target's type, in several sources, to reduce to one in the target. Sources are
  /// reduced in a binary tree: neighbouring groups of 1, 2, 4, ... to one.
  struct ReducedRows {
    struct Source {
      const char* row;          ///< the first one
      std::int64_t row_stride;  ///< in bytes
    };
    const Source* sources;  ///< [source_count], 1 to max_batch, in the order of the reduction
    std::size_t source_count;
    char* target;  ///< of the first row
    std::int64_t target_stride, row_count, row_bytes;
    bool stream;  ///< use non-temporal stores; requires rows of the target aligned to its type
  };
  using RowReduction = void (*)(const ReducedRows& rows);

  ElementKernel() = default;
  /// \throws Error if the types cannot be converted, a factor is not a number of the target's type, or the type does
  /// not support the reduction.
  explicit ElementKernel(const ElementOperation& operation);

  /// Applies the operation to a block of make_element_block().
  /// \param source, target  Starts of the two arrays, which do not overlap.
  /// \param stream  As for copy(), in rows of 1 KiB or more; ignored where the target is read or axes are permuted.
  void apply(const CopyBlock& block, const char* source, char* target, bool stream) const;

  /// Applies the operation to a batch of blocks, row by row for all endpoints: where these follow each other in the
  /// source, such as the parts of a row that go to different arrays, it is read in order.
  /// \param block  The block; its offsets are ignored.
  /// \param endpoints  [count] Starts of the blocks; sources may overlap, targets do not.
  /// \param count  1 to max_batch.
  /// \param stream  As for apply().
  /// \param stream_short_rows  Stream shorter rows, too: another core then reads them sooner.
  void apply_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream,
                   bool stream_short_rows) const;

  /// Applies the operation to one row.
  void apply_row(const Row& row) const;

  /// True if reduce_rows() supports the operation: a reduction without conversion, scaling or conjugation.
  bool reduces_rows() const { return reduce_rows_ != nullptr; }
  /// Stores the reduction of several rows to the target, whose current elements are not read.
  void reduce_rows(const ReducedRows& rows) const { reduce_rows_(rows); }

  bool reads_target() const { return operation_.beta != 0.0 || operation_.reduction != Reduction::none; }
  const ElementOperation& operation() const { return operation_; }

 private:
  /// Elements at strides in bytes; `count` of them.
  using Convert = void (*)(const char* source, std::int64_t source_stride, char* target, std::int64_t target_stride,
                           std::int64_t count);
  using Combine = void (*)(const ElementOperation& operation, const char* source, char* target,
                           std::int64_t target_stride, std::int64_t count);
  /// Converts elements of a row to the target's type. \param to  the first one; at a stride of `to_stride` bytes.
  void convert_elements(const Row& row, std::int64_t first, std::int64_t count, char* to, std::int64_t to_stride) const;

  /// As apply_row(), with non-temporal stores, by way of a buffer. The elements of the target are contiguous.
  /// \param writer  Writer of this target; its finish() writes the last bytes.
  void stream_row(const Row& row, detail::LineWriter& writer) const;

  ElementOperation operation_;
  Convert convert_ = nullptr;  // to the wire type if there is one, else to the target's
  Convert widen_ = nullptr;    // from the wire type to the target's; null: they are equal, or there is none
  Combine combine_ = nullptr;  // with the current elements; null: only converted
  RowReduction reduce_rows_ = nullptr;
  std::int64_t target_bytes_ = 0;
};

/// One step: between an array and a message, or between two arrays.
struct ElementStep {
  std::int64_t source_bytes = 1, target_bytes = 1;  ///< of an element
  const ElementKernel* kernel = nullptr;            ///< null: elements are copied
};

/// The steps of all elements of a plan. A message holds elements of the wire type or, without one, of the smaller of
/// the two types. Scaling and updates of the target follow the conversion, so that the value of an element does not
/// depend on its path.
class ElementSteps {
 public:
  ElementSteps() = default;
  ElementSteps(const ElementSteps&) = delete;
  ElementSteps& operator=(const ElementSteps&) = delete;

  /// \throws Error if the operation cannot be carried out with these types.
  void set(const ElementOperation& operation, std::int64_t source_bytes);

  const ElementStep& direct() const { return direct_; }  ///< from array to array
  const ElementStep& pack() const { return pack_; }      ///< from the source array to a message
  const ElementStep& unpack() const { return unpack_; }  ///< from a message to the target array
  /// Bytes of an element in a message.
  std::int64_t message_bytes() const { return pack_.target_bytes; }

 private:
  static const ElementKernel* kernel(ElementKernel& made, const ElementOperation& operation);

  ElementKernel pack_kernel_, unpack_kernel_, direct_kernel_;
  ElementStep direct_, pack_, unpack_;
};

}  // namespace dace_redist
