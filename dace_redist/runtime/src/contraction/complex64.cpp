// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

static const RegisteredContraction<std::complex<float>> of_complex64("complex64");

}  // namespace dace_redist
