// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

/// Adds `node_shared_allocator`, which allocates NumPy arrays, and `set_allocator`.
void add_numpy_memory(pybind11::module_& module);
