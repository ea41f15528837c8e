// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

static const RegisteredContraction<std::complex<double>> of_complex128("complex128");

}  // namespace dace_redist
