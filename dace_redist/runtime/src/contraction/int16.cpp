// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

// Sums of products of signed and of unsigned integers have the same bits: both are modulo 2^16.
static const RegisteredContraction<std::uint16_t> of_int16("int16"), of_uint16("uint16");

}  // namespace dace_redist
