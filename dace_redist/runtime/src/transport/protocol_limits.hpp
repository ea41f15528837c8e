// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Lengths by which the protocol of a message within a node is chosen.

#include <cstdint>

namespace dace_redist {

/// Messages of up to this many bytes are staged at once: the receiver need not say first where its arrays lie.
inline constexpr std::int64_t max_eager_bytes = 8 << 10;

/// Runs from this length on, in bytes, are read by the kernel in the first transfer: a second copy takes longer.
inline constexpr std::int64_t min_remote_run = 128 << 10;

/// Runs from this length on, in bytes, are read if that was measured to be faster: it depends on the machine.
inline constexpr std::int64_t min_tried_run = 2 << 10;

/// Runs up to this length, in bytes, of a large source that has some for each of several receivers, are not pulled:
/// each receiver would fetch whole cache lines, and prefetch further ones, but needs a part of them. The sender reads
/// every line once.
inline constexpr std::int64_t max_scattered_run = 256;
inline constexpr std::int64_t several_receivers = 2;

}  // namespace dace_redist
