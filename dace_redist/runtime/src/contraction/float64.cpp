// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

static const RegisteredContraction<double> of_float64("float64");

}  // namespace dace_redist
