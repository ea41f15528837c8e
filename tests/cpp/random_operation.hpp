// What is computed with elements on their way, drawn at random, and its outcome, by brute force.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "copy/element_operation.hpp"
#include "oracle.hpp"

namespace {

/// A copy in half of the cases; whole numbers so small that each type computes with them exactly.
ElementOperation random_operation(Random& random) {
  ElementOperation operation;
  if (random.one_in(2)) return operation;
  const std::vector<ElementType> types{ElementType::int32,   ElementType::int64,     ElementType::float32,
                                       ElementType::float64, ElementType::complex64, ElementType::complex128};
  const auto real = [](ElementType type) { return type < ElementType::complex64; };
  const auto kind = [](ElementType type) {
    return type < ElementType::float32 ? 0 : type < ElementType::complex64 ? 1 : 2;
  };
  operation.source = random.one_of(types);
  do operation.target = random.one_of(types);
  while (kind(operation.target) < kind(operation.source));
  operation.reduction = static_cast<Reduction>(random.one_in(2) ? 0 : random.between(1, 4));
  if (!real(operation.target) && operation.reduction > Reduction::prod) operation.reduction = Reduction::sum;
  if (operation.reduction != Reduction::prod) operation.alpha = static_cast<double>(random.between(1, 3));
  if (operation.reduction <= Reduction::sum) operation.beta = static_cast<double>(random.between(0, 2));
  operation.conjugate = !real(operation.target) && random.one_in(2);
  return operation;
}

/// The real number that an element of the source is.
double number_of(Index global) { return static_cast<double>(1 + global % 2); }

/// What is in each element of the target before.
inline constexpr double number_before = 3;

/// What the target's element must become. \param replicas  partial results of it.
double number_after(const ElementOperation& operation, Index global, Index replicas) {
  const double scaled = operation.alpha.real() * number_of(global), update = operation.beta.real() * number_before;
  const double count = static_cast<double>(replicas);
  if (operation.reduction == Reduction::sum) return count * scaled + update;
  return operation.reduction == Reduction::prod ? std::pow(scaled, count) : scaled + update;
}

void write_number(unsigned char* bytes, ElementType type, double number) {
  visit_element_type(type, [&](auto zero) {
    const decltype(zero) value(static_cast<decltype(zero)>(number));
    std::memcpy(bytes, &value, sizeof value);
  });
}

}  // namespace
