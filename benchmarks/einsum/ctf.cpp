// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Contractions of pairs of tensors by Cyclops Tensor Framework (CTF), for einsum_peers.py.

#include <ctf.hpp>
#include <vector>

using Tensor = CTF::Tensor<double>;

/// Makes a tensor of random elements, distributed as CTF chooses. Collective.
extern "C" Tensor* ctf_tensor(int ndim, const int* extents, int comm) {
  static auto* const world = new CTF::World(MPI_Comm_f2c(comm));  // never freed: MPI may have ended
  const std::vector<int> symmetries(static_cast<std::size_t>(ndim), NS);
  auto* const tensor = new Tensor(ndim, extents, symmetries.data(), *world);
  tensor->fill_random(0, 1);
  return tensor;
}

/// Contracts two tensors into a third. Collective.
/// \param a_indices, b_indices, c_indices  a letter for each of their axes.
extern "C" void ctf_contract(Tensor* a, const char* a_indices, Tensor* b, const char* b_indices, Tensor* c,
                             const char* c_indices) {
  (*c)[c_indices] = (*a)[a_indices] * (*b)[b_indices];
}
