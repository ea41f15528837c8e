// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

// Sums of products of signed and of unsigned integers have the same bits: both are modulo 2^8.
static const RegisteredContraction<std::uint8_t> of_int8("int8"), of_uint8("uint8");

}  // namespace dace_redist
