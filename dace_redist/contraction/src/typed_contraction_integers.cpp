// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>

#include "typed_contraction.hpp"

namespace dace_redist::contraction {

template std::unique_ptr<Contraction> make_typed_contraction<std::uint8_t>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::uint16_t>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::uint32_t>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::uint64_t>(const std::string&, Path);

}  // namespace dace_redist::contraction
