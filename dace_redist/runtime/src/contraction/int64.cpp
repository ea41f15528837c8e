// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/registry.hpp"

namespace dace_redist {

// Sums of products of signed and of unsigned integers have the same bits: both are modulo 2^64.
static const RegisteredContraction<std::uint64_t> of_int64("int64"), of_uint64("uint64");

}  // namespace dace_redist
