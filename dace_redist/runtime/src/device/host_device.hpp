// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Main memory in the place of a device, for tests where there is no GPU: everything above the interface runs as it
/// does with one. It orders no more than a GPU does: work that is enqueued runs late, and streams take turns at random,
/// so that a missing wait for an event shows in the result. It is a library of its own, libdace_redist_host_device.

#include <set>
#include <sstream>
#include <string>

#include "core/error.hpp"

namespace dace_redist {

/// Environment variable: `host` for the stand-in. Words after it, with commas between: `apart`, each rank has a device
/// of its own, which others do not reach; `aware`, MPI takes its addresses; `unnamed`, other ranks cannot map its
/// memory; `pooled`, they can map memory that plans allocate, but not arrays of programs, as with CUDA's stream-ordered
/// allocator.
inline constexpr const char* device_variable = "DACE_REDIST_DEVICE";

/// The words of the environment variable. \throws Error if the first one is not `host`, or another one is unknown.
inline std::set<std::string> words_in(const std::string& value) {
  static const std::set<std::string> known{"apart", "aware", "pooled", "unnamed"};
  std::set<std::string> words;
  std::istringstream list(value);
  for (std::string word; std::getline(list, word, ',');) {
    if (words.empty() ? word != "host" : known.count(word) == 0)
      throw Error(text(device_variable,
                       ": expected cuda, or host with the words apart, aware, pooled and unnamed, got \"", word, "\""));
    words.insert(word);
  }
  return words;
}

}  // namespace dace_redist
