// SPDX-License-Identifier: BSD-3-Clause
#include "functions.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace dace_redist::scalapack {
namespace {

const void* library_of(const void* address) {
  Dl_info facts;
  return dladdr(address, &facts) ? facts.dli_fbase : nullptr;
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  const auto add = [](dl_phdr_info* library, std::size_t, void* list) {
    static_cast<std::vector<std::string>*>(list)->emplace_back(library->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  return paths;
}

}  // namespace

void* find_linked_function(const char* name) { return dlsym(RTLD_NEXT, name); }

void* find_function(const char* name) {
  if (void* const next = find_linked_function(name)) return next;
  const void* const own = library_of(reinterpret_cast<const void*>(&find_function));
  for (const std::string& path : loaded_libraries()) {
    void* const library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    void* const found = dlsym(library, name);
    dlclose(library);  // it stays loaded: only the count of its users goes down again
    if (found && library_of(found) != own) return found;
  }
  return nullptr;
}

void function_missing(const char* name) {
  std::fprintf(stderr,
               "dace-redist: %s: no ScaLAPACK in this process; link the program with a shared library of ScaLAPACK, "
               "behind libdace_redist_scalapack\n",
               name);
  std::abort();
}

}  // namespace dace_redist::scalapack
