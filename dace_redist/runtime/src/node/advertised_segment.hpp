// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A segment of node-shared memory that its owner advertises to other ranks, which check that it is the one meant.

#include <cstdint>
#include <cstring>

#include "node/shared_array.hpp"

namespace dace_redist {

/// What another rank needs to map a segment, and to be sure that it is the right one.
struct SegmentEndpoint {
  SegmentName segment;
  std::uint64_t number = 0;  ///< found in the segment's header page
};

/// A segment behind a header page. The page holds a random number that proves whose segment it is: ranks in different
/// process namespaces may have the same process number. The rest of the page is scratch for a SharedArrayFinder.
class AdvertisedSegment {
 public:
  static constexpr std::int64_t header_bytes = 4096;

  /// \param nbytes  behind the header page.
  /// \throws Error if there is too little shared memory.
  void allocate(std::int64_t nbytes) {
    segment_ = SharedSegment(header_bytes + nbytes);
    number_ = detail::random_number();
    std::memcpy(segment_.at(number_offset), &number_, sizeof number_);
  }

  /// \param offset  in bytes from the start of the header page.
  char* at(std::int64_t offset) const { return segment_.at(offset); }
  SegmentEndpoint endpoint() const { return {segment_.name(), number_}; }

  /// \return a segment of which a SharedArrayFinder may overwrite the start of the first page.
  const SharedSegment& scratch() const { return segment_; }

  /// Maps a segment of another rank.
  /// \param segment  what was mapped; to be ignored if this returns false.
  /// \return false if it is not the segment meant.
  /// \throws Error if it cannot be mapped.
  static bool map(const SegmentEndpoint& endpoint, SharedSegment& segment) {
    segment = SharedSegment(endpoint.segment);
    return std::memcmp(segment.at(number_offset), &endpoint.number, sizeof endpoint.number) == 0;
  }

 private:
  static constexpr std::int64_t number_offset = header_bytes / 2;

  SharedSegment segment_;
  std::uint64_t number_ = 0;  // random
};

}  // namespace dace_redist
