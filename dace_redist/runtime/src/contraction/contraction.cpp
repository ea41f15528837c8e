// SPDX-License-Identifier: BSD-3-Clause
#include "contraction/contraction.hpp"

#include <complex>
#include <cstdint>
#include <utility>

#include "contraction/blas.hpp"
#include "core/error.hpp"

namespace dace_redist {
namespace {

using MakeContraction = std::unique_ptr<Contraction> (*)(const std::string& expression, Path path);

/// Contractions of signed and of unsigned integers are the same.
constexpr std::pair<const char*, MakeContraction> element_types[] = {
    {"float32", make_typed_contraction<float>},
    {"float64", make_typed_contraction<double>},
    {"complex64", make_typed_contraction<std::complex<float>>},
    {"complex128", make_typed_contraction<std::complex<double>>},
    {"int8", make_typed_contraction<std::uint8_t>},
    {"uint8", make_typed_contraction<std::uint8_t>},
    {"int16", make_typed_contraction<std::uint16_t>},
    {"uint16", make_typed_contraction<std::uint16_t>},
    {"int32", make_typed_contraction<std::uint32_t>},
    {"uint32", make_typed_contraction<std::uint32_t>},
    {"int64", make_typed_contraction<std::uint64_t>},
    {"uint64", make_typed_contraction<std::uint64_t>},
};

}  // namespace

std::unique_ptr<Contraction> make_contraction(const std::string& element_type, const std::string& expression,
                                              Path path) {
  for (const auto& [name, make] : element_types)
    if (element_type == name) return make(expression, std::move(path));
  throw Error(text("cannot contract elements of type ", element_type));
}

void limit_blas_threads() { blas::limit_threads(); }

}  // namespace dace_redist
