// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The self copy: elements that a rank keeps.

#include <memory>

#include "transport/transport.hpp"

namespace dace_redist {

/// Copies `messages.self` when a transfer begins.
std::unique_ptr<Transport> make_self(const Link& link, Messages messages);

}  // namespace dace_redist
