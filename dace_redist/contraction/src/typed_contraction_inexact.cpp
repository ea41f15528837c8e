// SPDX-License-Identifier: BSD-3-Clause
#include <complex>

#include "typed_contraction.hpp"

namespace dace_redist::contraction {

template std::unique_ptr<Contraction> make_typed_contraction<float>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<double>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::complex<float>>(const std::string&, Path);
template std::unique_ptr<Contraction> make_typed_contraction<std::complex<double>>(const std::string&, Path);

}  // namespace dace_redist::contraction
