// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// How an error leaves a generated program: as a Python exception where Python called it, as a C++ exception elsewhere.

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string>

#include "core/error.hpp"

namespace dace_redist {
namespace python {

/// The few functions of Python's C API that are needed, looked up in the running process: the headers do without
/// Python's, and programs that no Python calls do without Python.
template <class Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// Whether an error waits to be raised. Those that follow from it are dropped: each would be raised on its own, the
/// second one in the handler of the first.
inline std::atomic<bool> waiting{false};

/// Runs in Python's main thread, with its lock, as soon as the program has returned: raises the error there.
inline int raise(void* argument) {
  const std::unique_ptr<std::string> message(static_cast<std::string*>(argument));
  waiting = false;
  auto* import = function<void*(const char*)>("PyImport_ImportModule");
  auto* attribute = function<void*(void*, const char*)>("PyObject_GetAttrString");
  auto* set_error = function<void(void*, const char*)>("PyErr_SetString");
  void* module = import("dace_redist");
  void* exception = module ? attribute(module, "RedistributionError") : nullptr;
  if (exception) set_error(exception, message->c_str());
  return -1;
}

inline bool running() {
  auto* initialized = function<int()>("Py_IsInitialized");
  return initialized && initialized();
}

}  // namespace python

/// Hands an error to the caller of the program. \throws Error unless Python called.
inline void report(const std::string& message) {
  auto* add_pending_call = python::function<int(int (*)(void*), void*)>("Py_AddPendingCall");
  if (!add_pending_call || !python::running()) throw Error(message);
  if (python::waiting.exchange(true)) return;
  auto owned = std::make_unique<std::string>(message);
  if (add_pending_call(python::raise, owned.get()) == 0)
    owned.release();
  else
    python::waiting = false;
}

}  // namespace dace_redist
