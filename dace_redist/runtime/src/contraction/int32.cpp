// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

// Sums of products of signed and of unsigned integers have the same bits: both are modulo 2^32.
static const RegisteredContraction<std::uint32_t> of_int32("int32"), of_uint32("uint32");

}  // namespace dace_redist
