// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>

#include "contraction/typed_contraction.hpp"

namespace dace_redist {

// Sums of products of signed and of unsigned integers have the same bits: both are modulo a power of two.
template std::unique_ptr<Contraction> make_typed_contraction<std::uint8_t>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::uint16_t>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::uint32_t>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::uint64_t>(const std::string&, Path);

}  // namespace dace_redist
