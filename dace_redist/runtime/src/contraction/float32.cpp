// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

static const RegisteredContraction<float> of_float32("float32");

}  // namespace dace_redist
