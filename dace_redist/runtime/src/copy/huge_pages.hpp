// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Memory in huge pages, where the system has them: strided copies then spend less on page lookups.

#include <cstdint>

#include "dace_redist_types.h"

namespace dace_redist {

/// On processors with pages of 4 KiB; harmless on others.
inline constexpr std::int64_t huge_page_bytes = std::int64_t{2} << 20;

/// An address from which `nbytes` of address space are free, a multiple of huge_page_bytes. Null if there is none.
char* aligned_address(std::int64_t nbytes);

/// New private memory, in huge pages where they are not forbidden, not touched. Unlike memory of malloc(), it does not
/// lie in small pages that were touched and freed before.
/// \return null if there is none.
DR_API char* map_huge_pages(std::int64_t nbytes);
DR_API void unmap_huge_pages(char* start, std::int64_t nbytes);

/// Moves new node-shared memory into huge pages at once, whole ones only. The kernel gives such memory none on request
/// unless the administrator allows it (`shmem_enabled`), but from Linux 6.1 on it collapses existing pages, which takes
/// less time than touching the small pages one by one. Advisory: errors are ignored.
/// \param start  A multiple of huge_page_bytes.
DR_API void take_huge_pages(char* start, std::int64_t nbytes);

}  // namespace dace_redist
