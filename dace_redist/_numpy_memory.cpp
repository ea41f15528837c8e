// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Lets NumPy allocate arrays in node-shared memory, by its interface for allocators (NumPy Enhancement Proposal 49).

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include "_numpy_memory.hpp"

#include <numpy/arrayobject.h>
#include <numpy/npy_2_compat.h>

#include "shm/array_allocator.hpp"
#include "shm/arena.hpp"

namespace py = pybind11;

namespace {

void* allocate(void*, std::size_t nbytes) { return dace_redist::allocate_array(nbytes, false); }
void* allocate_zeros(void*, std::size_t count, std::size_t nbytes) {
  if (nbytes > 0 && count > PTRDIFF_MAX / nbytes) return nullptr;
  return dace_redist::allocate_array(count * nbytes, true);
}
void* resize(void*, void* array, std::size_t nbytes) { return dace_redist::resize_array(array, nbytes); }
void release(void*, void* array, std::size_t) { dace_redist::free_anywhere(array); }

PyDataMem_Handler handler{"dace_redist_node_shared", 1, {nullptr, allocate, allocate_zeros, resize, release}};

/// From now on NumPy allocates by an allocator in this context; None: by its own. \return the one before.
py::object set_allocator(const py::object& allocator) {
  PyObject* const before = PyDataMem_SetHandler(allocator.is_none() ? nullptr : allocator.ptr());
  if (!before) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(before);
}

}  // namespace

void add_numpy_memory(py::module_& module) {
  if (PyArray_ImportNumPyAPI() < 0) throw py::error_already_set();
  module.attr("node_shared_allocator") = py::capsule(&handler, "mem_handler");
  module.def("set_allocator", &set_allocator, py::arg("allocator"),
             "From now on NumPy allocates by an allocator in this context; None: by its own. Returns the one before.");
}
